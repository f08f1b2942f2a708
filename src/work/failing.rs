//! Keys that cannot be settled although the server accepts writes. Such a key holds up no other one: it is tried again after a
//! pause that doubles from failure to failure.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use mortise_core::{Instant, KeyId, KeyRef};

use crate::ffi::{Context, MainThread};
use crate::time::clock;
use crate::work::queue;

static FAILING: MainThread<RefCell<FailingKeys>> = MainThread::new(RefCell::new(FailingKeys {
    pauses: BTreeMap::new(),
    retries: BTreeSet::new(),
}));

/// The first pause and the longest one, in milliseconds.
const PAUSES: std::ops::RangeInclusive<u64> = 1_000..=60_000;
/// How many are tried again in one tick.
const PER_TICK: usize = 100;

#[derive(Debug)]
struct FailingKeys {
    /// By key, the pause after its last failure, in milliseconds.
    pauses: BTreeMap<KeyId, u64>,
    /// When each is tried again.
    retries: BTreeSet<(Instant, KeyId)>,
}

/// Records that the key could not be settled because of `why`, which is logged once. It is tried again after a pause.
pub(crate) fn failed(ctx: &Context<'_>, key: KeyRef<'_>, why: &str) {
    let mut failing = FAILING.get(ctx).borrow_mut();
    let key = key.to_id();
    let before = failing.pauses.get(&key).copied();
    let pause = before.map_or(*PAUSES.start(), |pause| (pause * 2).min(*PAUSES.end()));
    failing.pauses.insert(key.clone(), pause);
    failing
        .retries
        .insert((clock::now().after(pause), key.clone()));
    drop(failing);
    if before.is_none() {
        ctx.warn(&format!(
            "the lock '{}' in database {} cannot be handed over or freed: {why}. It is tried again later; other locks are not affected",
            key.name.escape_ascii(),
            key.db.0,
        ));
    }
}

/// Whether the key could not be settled the last time.
pub(crate) fn is_failing(ctx: &Context<'_>, key: KeyRef<'_>) -> bool {
    let failing = FAILING.get(ctx).borrow();
    !failing.pauses.is_empty() && failing.pauses.contains_key(&key.to_id())
}

/// How many keys are failing.
pub(crate) fn len(ctx: &Context<'_>) -> usize {
    FAILING.get(ctx).borrow().pauses.len()
}

/// Forgets the failures of a key that has been settled, or need not be.
pub(crate) fn forget(ctx: &Context<'_>, key: KeyRef<'_>) {
    let mut failing = FAILING.get(ctx).borrow_mut();
    if !failing.pauses.is_empty() {
        failing.pauses.remove(&key.to_id());
    }
}

/// Queues the keys that are to be tried again now. The sweep calls this.
pub(crate) fn retry_due(ctx: &Context<'_>, now: Instant) {
    for _ in 0..PER_TICK {
        let mut failing = FAILING.get(ctx).borrow_mut();
        if failing.retries.first().is_none_or(|(at, _)| *at > now) {
            return;
        }
        let first = failing.retries.pop_first();
        drop(failing);
        if let Some((_, key)) = first {
            queue::settle(ctx, key.as_ref());
        }
    }
}
