//! `LOCK.SETTLE`, called inside the server: a change by a timer passes the same gates as a client's write.

use std::ffi::CStr;

use mortise_core::{Db, KeyId, KeyRef, WaiterId};

use crate::ffi::{Context, Refusal, Refused};
pub(crate) use crate::work::state::SettleCall;
use crate::work::state::{self, Turn};

/// The command that timers call inside the server.
const SETTLE: &CStr = c"LOCK.SETTLE";

/// Settles a key from a timer, if the server accepts writes to it.
///
/// # Errors
/// [`Refused`] if it does not, or if the command failed.
pub(crate) fn call(ctx: &Context<'_>, key: KeyRef<'_>) -> Result<(), Refused> {
    let call = SettleCall { several: None };
    run(ctx, key.db, call, || ctx.call_write(SETTLE, key.name))
}

/// Grants the request `id` all of these keys from a timer, if the server accepts writes to them.
///
/// # Errors
/// As for [`call`].
pub(crate) fn call_several(ctx: &Context<'_>, keys: &[KeyId], id: WaiterId) -> Result<(), Refused> {
    let call = SettleCall { several: Some(id) };
    let db = keys.first().map_or_else(Db::default, |first| first.db);
    run(ctx, db, call, || ctx.call_write_several(SETTLE, keys))
}

fn run(
    ctx: &Context<'_>,
    db: Db,
    call: SettleCall,
    write: impl FnOnce() -> Result<(), Refused>,
) -> Result<(), Refused> {
    ctx.select(db);
    state::get(ctx).settle_call.set(Some(call));
    let outcome = write();
    let was_refused = state::get(ctx).settle_call.take().is_some();
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
pub(crate) fn take(turn: &Turn) -> Option<SettleCall> {
    turn.settle_call.take()
}
