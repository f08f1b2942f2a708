//! Settles the keys of walks (see `waiting::walk`) and locks that came to their keys (see `keys::arrivals`): a few at a
//! time, after everything that is urgent.

use mortise_core::KeyId;

use crate::ffi::Context;
use crate::keys::arrivals::{self, Entered};
use crate::keys::dirty::{self, DirtyKey};
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
        recheck(ctx, key);
    }
    true
}

/// While nothing is granted: one key of a walk that never ends. False at the end of each round.
///
/// If nobody holds, no event shows that the key became another type, because the key loses no lock.
pub(crate) fn patrol(ctx: &Context<'_>) -> bool {
    let step = state::get(ctx)
        .patrol
        .borrow_mut()
        .step(&queue::all(ctx).borrow());
    match step {
        Step::Key(key) => recheck(ctx, key),
        Step::Passed => {}
        Step::End => {
            *state::get(ctx).patrol.borrow_mut() = Walk::over(Scope::All);
            return false;
        }
    }
    true
}

fn recheck(ctx: &Context<'_>, key: KeyId) {
    let key = DirtyKey {
        key,
        recheck_holders: true,
    };
    dirty_keys::settle(ctx, key);
}

/// Settles the first lock that came to its key by another command than ours. False if there is none
/// now.
pub(crate) fn settle_arrival(ctx: &Context<'_>) -> bool {
    match arrivals::enter_next(ctx) {
        Entered::None => return false,
        Entered::Again => {}
        Entered::Key(key) => recheck(ctx, key),
    }
    true
}
