//! The wake list: blocked clients that have an answer, for a timer to unblock. Nothing else unblocks a client, so between the decision and
//! its delivery the client can only disappear.

use crate::ffi::{Blocked, Context};
use crate::time::alarms;
use crate::waiting::state::{self, Waiting};

/// Unblocks a client before the event loop turns.
pub(super) fn wake(ctx: &Context<'_>, blocked: Blocked) {
    state::get(ctx).wake_list.borrow_mut().push_back(blocked);
    alarms::at_end_of_turn(ctx);
}

/// Unblocks the next client. False if there is none.
pub(crate) fn wake_next(ctx: &Context<'_>) -> bool {
    let next = state::get(ctx).wake_list.borrow_mut().pop_front();
    match next {
        Some(blocked) => blocked.unblock(),
        None => return false,
    }
    true
}

/// A client has yet to be unblocked.
pub(crate) fn some_to_wake(waiting: &Waiting) -> bool {
    !waiting.wake_list.borrow().is_empty()
}
