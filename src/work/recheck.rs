//! Settles the keys of walks (see `waiting::walk`) and locks that came to their keys (see `keys::arrivals`): a few at a
//! time, after everything that is urgent.

use crate::ffi::Context;
use crate::keys::arrivals::{self, Entered};
use crate::keys::dirty;
use crate::waiting::walk::{self, Scope, Step, Walk};
use crate::waiting::{self, queue};
use crate::work::dirty_keys;
use crate::work::state;

/// Settles one key of the first walk. False if there is nothing to do now.
pub(crate) fn step(ctx: &Context<'_>) -> bool {
    if walk::none(waiting::state(ctx)) || dirty::is_blocked(ctx) {
        return false;
    }
    if let Step::Key(key) = walk::step(waiting::state(ctx)) {
        dirty_keys::settle(ctx, key);
    }
    true
}

/// From the sweep: settles the next key of those that nobody holds. False after the last one.
///
/// No event shows that such a key became another type, because it loses no lock.
pub(crate) fn patrol(ctx: &Context<'_>) -> bool {
    let step = state::get(ctx)
        .patrol
        .borrow_mut()
        .step(&queue::all(ctx).borrow());
    match step {
        Step::Key(key) => dirty_keys::settle(ctx, key),
        Step::Passed => {}
        Step::End => {
            *state::get(ctx).patrol.borrow_mut() = Walk::over(Scope::Unheld);
            return false;
        }
    }
    true
}

/// Settles the first lock that came to its key by another command than ours. False if there is none
/// now.
pub(crate) fn settle_arrival(ctx: &Context<'_>) -> bool {
    match arrivals::enter_next(ctx) {
        Entered::None => return false,
        Entered::Again => {}
        Entered::Key(key) => {
            queue::all(ctx).borrow_mut().recheck_holders(key.as_ref());
            dirty_keys::settle(ctx, key);
        }
    }
    true
}
