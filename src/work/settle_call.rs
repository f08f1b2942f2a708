//! `LOCK.SETTLE`, called inside the server: a change by a timer passes the same gates as a client's write.

use std::cell::Cell;
use std::ffi::CStr;

use mortise_core::{Db, KeyId, KeyRef, WaiterId};

use crate::ffi::{Context, MainThread, Refusal, Refused};

/// The call that is under way. The command takes it from here, so any other caller of the command is refused.
static CALL: MainThread<Cell<Option<SettleCall>>> = MainThread::new(Cell::new(None));

/// A call of the module's own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SettleCall {
    /// Settles one key.
    Key,
    /// Grants this request all its keys.
    Several(WaiterId),
}

/// The command that timers call inside the server.
const SETTLE: &CStr = c"LOCK.SETTLE";

/// Settles a key from a timer, if the server accepts writes to it.
///
/// # Errors
/// [`Refused`] if it does not, or if the command failed.
pub(crate) fn call(ctx: &Context<'_>, key: KeyRef<'_>) -> Result<(), Refused> {
    run(ctx, key.db, SettleCall::Key, || {
        ctx.call_write(SETTLE, key.name)
    })
}

/// Grants the request `id` all of these keys from a timer, if the server accepts writes to them.
///
/// # Errors
/// As for [`call`].
pub(crate) fn call_several(ctx: &Context<'_>, keys: &[KeyId], id: WaiterId) -> Result<(), Refused> {
    let db = keys.first().map_or_else(Db::default, |first| first.db);
    run(ctx, db, SettleCall::Several(id), || {
        ctx.call_write_several(SETTLE, keys)
    })
}

fn run(
    ctx: &Context<'_>,
    db: Db,
    call: SettleCall,
    write: impl FnOnce() -> Result<(), Refused>,
) -> Result<(), Refused> {
    ctx.select(db);
    CALL.get(ctx).set(Some(call));
    let outcome = write();
    let was_refused = CALL.get(ctx).take().is_some();
    outcome.map_err(|refused| match was_refused {
        true => refused,
        // No gate refused it: the command ran, and failed.
        false => Refused {
            kind: Refusal::Failed,
            ..refused
        },
    })
}

/// The call for which the command runs now; `None` if a client sent the command. Each call is returned once.
pub(crate) fn take(ctx: &Context<'_>) -> Option<SettleCall> {
    CALL.get(ctx).take()
}
