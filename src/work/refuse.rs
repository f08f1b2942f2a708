//! Refuses waiters that all get the same error: at a key that became another type, in a slot that has left, on a server that is
//! no longer a primary. There may be a hundred thousand of them, so they are refused one at a time.
//!
//! A refusal does not concern requests that come to wait after it was queued.

use mortise_core::{KeyRef, Queue};

use crate::error::Error;
use crate::ffi::Context;
use crate::waiting::{self, waiters};
use crate::work::queue::{self, Refusal, Work};
use crate::work::queue::{Scan, Scope, Step};

/// Refuses all waiters at the key.
pub(crate) fn at_key(ctx: &Context<'_>, key: KeyRef<'_>, error: Error) {
    all(ctx, Scope::Key(key.to_id()), error);
}

/// Refuses all waiters in the scope.
pub(super) fn all(ctx: &Context<'_>, scope: Scope, error: Error) {
    begin(ctx, scope, false, error);
}

/// Refuses the requests for several keys of a slot that begins to move, key by key: they cannot be granted meanwhile.
pub(super) fn several_in_slot(ctx: &Context<'_>, slot: u16) {
    begin(ctx, Scope::Slot(slot), true, Error::SLOT_MOVES);
}

fn begin(ctx: &Context<'_>, scope: Scope, only_several: bool, error: Error) {
    let last = {
        let queues = waiting::queues(ctx).borrow();
        if queues.is_empty() {
            return;
        }
        queues.last_id()
    };
    let refusal = Refusal {
        scan: Scan::over(scope),
        key: None,
        only_several,
        last,
        error,
    };
    queue::push(ctx, Work::Refuse(refusal));
}

/// Refuses one waiter, or goes to the next key. `None` after the last key.
pub(super) fn step(ctx: &Context<'_>, mut refusal: Refusal) -> Option<Refusal> {
    let Some(key) = &refusal.key else {
        match refusal.scan.step(&waiting::queues(ctx).borrow()) {
            Step::Key(key) => refusal.key = Some(key),
            Step::Passed => {}
            Step::End => return None,
        }
        return Some(refusal);
    };
    let next = {
        let queues = waiting::queues(ctx).borrow();
        let queue = queues.get(key.as_ref());
        let next = match refusal.only_several {
            true => queue.and_then(Queue::first_several),
            false => queue.and_then(|queue| queue.iter().find(|waiter| waiter.id <= refusal.last)),
        };
        next.map(|waiter| waiter.id)
    };
    if let Some(id) = next {
        waiters::refuse(ctx, id, &refusal.error);
        return Some(refusal);
    }
    // A later waiter may have waited for one that is gone.
    if waiting::is_awaited(ctx, key.as_ref()) {
        queue::settle(ctx, key.as_ref());
    }
    refusal.key = None;
    Some(refusal)
}
