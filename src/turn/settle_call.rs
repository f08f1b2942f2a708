//! `LOCK.SETTLE`, called inside the server: what timers change passes every gate that a client's write has to pass.

use std::cell::Cell;
use std::ffi::CStr;

use mortise_core::KeyRef;

use crate::ffi::{Context, MainThread, Refusal, Refused};

/// The call that is under way. The command takes it, so that whatever else calls the command is refused.
static CALL: MainThread<Cell<Option<SettleCall>>> = MainThread::new(Cell::new(None));

/// A call of the module's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettleCall {
    /// The lock may hold owners that neither came through the queue nor by a command.
    pub(crate) recheck_holders: bool,
}

/// The command that timers call inside the server.
const SETTLE: &CStr = c"LOCK.SETTLE";

/// Settles a key from a timer, if the server accepts writes to it.
///
/// # Errors
/// [`Refused`] if it does not, or if the command failed.
pub(crate) fn call(
    ctx: &Context<'_>,
    key: KeyRef<'_>,
    recheck_holders: bool,
) -> Result<(), Refused> {
    ctx.select(key.db);
    CALL.get(ctx).set(Some(SettleCall { recheck_holders }));
    let outcome = ctx.call_write(SETTLE, key.name);
    let was_refused = CALL.get(ctx).take().is_some();
    outcome.map_err(|refused| match was_refused {
        true => refused,
        // No gate: the command ran, and failed by itself.
        false => Refused {
            kind: Refusal::Failed,
            ..refused
        },
    })
}

/// The call for which the command runs now; `None` for a client's. Once for each call.
pub(crate) fn take(ctx: &Context<'_>) -> Option<SettleCall> {
    CALL.get(ctx).take()
}
