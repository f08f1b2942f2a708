//! Waiters that all get the same error: at a key that became another type, in a slot that has left,
//! on a server that is no longer a primary. They are answered a few at a time, because there may be a hundred thousand of them.
//!
//! A dismissal does not concern requests that come to wait after it was announced.

use mortise_core::{KeyRef, Queue};

use crate::error::Error;
use crate::ffi::Context;
use crate::keys::dirty;
use crate::time::alarms;
use crate::waiting::waiters;
use crate::waiting::walk::{Scope, Step, Walk};
use crate::waiting::{self, queue};
use crate::work::state::{self, Dismissal, Meant, Turn};

/// Answers all waiters at the key with `error`.
pub(crate) fn refuse_all(ctx: &Context<'_>, key: KeyRef<'_>, error: Error) {
    announce(ctx, Meant::Key(key.to_id()), error);
}

pub(super) const SLOT_HAS_LEFT: Error =
    Error::Unblocked("the key's slot is no longer on this server, ask again");

/// The key's slot has left this server.
pub(crate) fn send_away(ctx: &Context<'_>, key: KeyRef<'_>) {
    refuse_all(ctx, key, SLOT_HAS_LEFT);
}

/// The slot has left this server.
pub(crate) fn send_slot_away(ctx: &Context<'_>, slot: u16) {
    let dismissals = state::get(ctx).dismissals.borrow();
    let known = dismissals
        .iter()
        .any(|known| matches!(known.meant, Meant::Slot(its) if its == slot));
    drop(dismissals);
    if !known {
        announce(ctx, Meant::Slot(slot), SLOT_HAS_LEFT);
    }
}

/// The slot begins to move, key by key: requests for several of its keys cannot be granted meanwhile.
pub(super) fn refuse_several(ctx: &Context<'_>, slot: u16) {
    announce(ctx, Meant::SeveralIn(slot), Error::SlotMoves);
}

/// This server is no primary any more.
pub(crate) fn send_all_away(ctx: &Context<'_>) {
    let error = Error::Unblocked("this server is no longer the primary, ask again");
    announce(ctx, Meant::All, error);
}

fn announce(ctx: &Context<'_>, meant: Meant, error: Error) {
    let last = {
        let queues = queue::all(ctx).borrow();
        if queues.is_empty() {
            return;
        }
        queues.last_id()
    };
    let mut dismissals = state::get(ctx).dismissals.borrow_mut();
    // Where a key stands that gets its turn again before all of its waiters have been answered.
    if let Some(known) = dismissals.back_mut()
        && matches!(meant, Meant::Key(_))
        && known.meant == meant
    {
        known.last = last;
        return;
    }
    let (key, walk) = match &meant {
        Meant::Key(key) => (Some(key.clone()), None),
        Meant::Slot(slot) | Meant::SeveralIn(slot) => (None, Some(Walk::over(Scope::Slot(*slot)))),
        Meant::All => (None, Some(Walk::over(Scope::All))),
    };
    dismissals.push_back(Dismissal {
        key,
        walk,
        meant,
        last,
        error,
    });
    alarms::at_end_of_turn(ctx);
}

/// None is under way.
pub(crate) fn none(turn: &Turn) -> bool {
    turn.dismissals.borrow().is_empty()
}

/// Answers one waiter. False if there is none.
pub(crate) fn step(ctx: &Context<'_>) -> bool {
    let mut dismissals = state::get(ctx).dismissals.borrow_mut();
    let Some(first) = dismissals.front_mut() else {
        return false;
    };
    let Some(key) = first.key.clone() else {
        let queues = queue::all(ctx).borrow();
        match first
            .walk
            .as_mut()
            .map_or(Step::End, |walk| walk.step(&queues))
        {
            Step::Key(key) => first.key = Some(key),
            Step::Passed => {}
            Step::End => {
                dismissals.pop_front();
            }
        }
        return true;
    };
    let next = {
        let queues = queue::all(ctx).borrow();
        let queue = queues.get(key.as_ref());
        let meant = match first.meant {
            Meant::SeveralIn(_) => queue.and_then(Queue::first_several),
            _ => queue.and_then(|queue| queue.iter().find(|waiter| waiter.id <= first.last)),
        };
        meant.map(|waiter| waiter.id)
    };
    if let Some(id) = next {
        let error = first.error.clone();
        drop(dismissals);
        waiters::refuse(ctx, id, error);
        return true;
    }
    first.key = None;
    drop(dismissals);
    // A later waiter may have waited for one that is gone.
    if queue::wait_at(waiting::state(ctx), key.as_ref()) {
        dirty::mark(ctx, key.as_ref());
    }
    true
}
