//! Waiters who are all answered with the same error: at a key that became another type, in a slot
//! that has left, on a server that is no primary any more. A few at a time: there may be a hundred
//! thousand of them.
//!
//! Who comes to wait after a dismissal was announced is not meant by it.

use std::collections::VecDeque;

use mortise_core::{KeyId, WaiterId};

use crate::error::Error;
use crate::state::{ROOM_KEPT, State};
use crate::turn::dirty;
use crate::turn::relook::{Scope, Walk};
use crate::turn::timers;
use crate::waiting::waiters;

/// The dismissals that are under way.
pub(crate) type Dismissals = VecDeque<Dismissal>;

/// A dismissal that is under way.
#[derive(Debug)]
pub(crate) struct Dismissal {
    /// The key whose waiters are being answered.
    key: Option<KeyId>,
    /// Where the keys behind it come from.
    walk: Option<Walk>,
    /// The slot that it is for.
    slot: Option<u16>,
    /// The last waiter that it is for.
    last: WaiterId,
    error: Error,
}

/// Answers everybody who waits at the key with `error`.
pub(crate) fn refuse_all(state: &State, db: i32, name: &[u8], error: Error) {
    let key = KeyId {
        db: db as u32,
        name: name.into(),
    };
    announce(state, Some(key), None, error);
}

const SLOT_HAS_LEFT: Error =
    Error::Unblocked("the key's slot is not on this server any more, ask again");

/// The key's slot has left this server.
pub(crate) fn send_away(state: &State, db: i32, name: &[u8]) {
    refuse_all(state, db, name, SLOT_HAS_LEFT);
}

/// The slot has left this server.
pub(crate) fn send_slot_away(state: &State, slot: u16) {
    let known = state
        .dismissals
        .borrow()
        .iter()
        .any(|known| known.slot == Some(slot));
    if !known {
        announce(state, None, Some(Scope::Slot(slot)), SLOT_HAS_LEFT);
    }
}

/// This server is no primary any more.
pub(crate) fn send_all_away(state: &State) {
    let error = Error::Unblocked("this server is not the primary any more, ask again");
    announce(state, None, Some(Scope::All), error);
}

fn announce(state: &State, key: Option<KeyId>, scope: Option<Scope>, error: Error) {
    let last = {
        let queues = state.queues.borrow();
        if queues.is_empty() {
            return;
        }
        queues.last_id()
    };
    let mut dismissals = state.dismissals.borrow_mut();
    // Of a key that is looked at again before all of its waiters have been answered.
    if let Some(known) = dismissals.back_mut()
        && known.walk.is_none()
        && scope.is_none()
        && known.key == key
    {
        known.last = last;
        return;
    }
    dismissals.push_back(Dismissal {
        key,
        walk: scope.map(Walk::over),
        slot: match scope {
            Some(Scope::Slot(slot)) => Some(slot),
            _ => None,
        },
        last,
        error,
    });
    timers::at_end_of_turn(state);
}

/// Answers one waiter. False if there is none.
pub(crate) fn step(state: &State) -> bool {
    let mut dismissals = state.dismissals.borrow_mut();
    let Some(first) = dismissals.front_mut() else {
        return false;
    };
    let Some(key) = first.key.clone() else {
        match first.walk.as_mut().and_then(|walk| walk.next(state)) {
            Some(next) => first.key = next.map(|next| next.key),
            None => {
                dismissals.pop_front();
                dismissals.shrink_to(ROOM_KEPT);
            }
        }
        return true;
    };
    let next = {
        let queues = state.queues.borrow();
        let queue = queues.get(key.db, &key.name);
        let meant = queue.and_then(|queue| queue.iter().find(|waiter| waiter.id <= first.last));
        meant.map(|waiter| waiter.id)
    };
    if let Some(id) = next {
        let error = first.error.clone();
        drop(dismissals);
        waiters::refuse(state, id, error);
        return true;
    }
    first.key = None;
    drop(dismissals);
    // Who came later may have waited for somebody who is gone.
    if waiters::wait_at(state, key.db as i32, &key.name) {
        dirty::mark_queue(key.db as i32, &key.name);
    }
    true
}
