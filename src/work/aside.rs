//! Keys that cannot be settled although the server accepts writes. Each is set aside, so that it holds up no other key, and
//! is tried again after a pause that doubles from failure to failure.

use mortise_core::{Instant, KeyId, KeyRef};

use crate::ffi::Context;
use crate::keys::dirty;
use crate::work::state::{self, Turn};

/// The first pause and the longest one, in milliseconds.
const PAUSES: std::ops::RangeInclusive<u64> = 1_000..=60_000;
/// How many are tried again in one tick.
const PER_TICK: usize = 100;

/// The key could not be settled because of `why`, which is logged once. After how many milliseconds to try again.
pub(crate) fn pause(ctx: &Context<'_>, key: KeyRef<'_>, why: &str) -> u64 {
    let mut aside = state::get(ctx).aside.borrow_mut();
    if let Some(pause) = aside.pauses.get_mut(&key.to_id()) {
        *pause = (*pause * 2).min(*PAUSES.end());
        return *pause;
    }
    aside.pauses.insert(key.to_id(), *PAUSES.start());
    drop(aside);
    ctx.warn(&format!(
        "the lock '{}' in database {} cannot be handed over or freed: {why}. It is set aside and tried again later; other locks are not affected",
        key.name.escape_ascii(),
        key.db.0,
    ));
    *PAUSES.start()
}

/// The key has waiters and is tried again at `at`.
pub(crate) fn retry_at(turn: &Turn, at: Instant, key: KeyId) {
    turn.aside.borrow_mut().due.insert((at, key));
}

/// The key has been settled, or need not be.
pub(crate) fn forget(turn: &Turn, key: KeyRef<'_>) {
    let mut aside = turn.aside.borrow_mut();
    if !aside.pauses.is_empty() {
        aside.pauses.remove(&key.to_id());
    }
}

/// From the sweep timer: marks the keys to retry now.
pub(crate) fn mark_due(ctx: &Context<'_>, now: Instant) {
    for _ in 0..PER_TICK {
        let mut aside = state::get(ctx).aside.borrow_mut();
        if aside.due.first().is_none_or(|(at, _)| *at > now) {
            return;
        }
        let first = aside.due.pop_first();
        drop(aside);
        if let Some((_, key)) = first {
            dirty::mark(ctx, key.as_ref());
        }
    }
}
