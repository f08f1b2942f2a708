//! Holds that have left their lock together: counted, notified and freed one at a time, because there may be a hundred thousand of
//! them.

use mortise_core::{KeyRef, Remains, Stake};

use crate::ffi::Context;
use crate::totals;
use crate::work::queue::{self, EndedHolds};

/// Keeps holds of the lock at the key whose leases are over.
pub(crate) fn keep_ended(ctx: &Context<'_>, key: KeyRef<'_>, holds: Box<Remains>) {
    keep(ctx, key, holds, true);
}

/// Keeps holds of the lock at the key that the primary has ended.
pub(crate) fn keep_dropped(ctx: &Context<'_>, key: KeyRef<'_>, holds: Box<Remains>) {
    keep(ctx, key, holds, false);
}

fn keep(ctx: &Context<'_>, key: KeyRef<'_>, holds: Box<Remains>, expired: bool) {
    let holds = EndedHolds {
        key: key.to_id(),
        holds,
        expired,
    };
    queue::free_holds(ctx, holds);
}

/// Frees one of the holds. `None` if that was the last one.
pub(crate) fn free_one(ctx: &Context<'_>, mut ended: EndedHolds) -> Option<EndedHolds> {
    let (_, stake) = ended.holds.pop()?;
    if ended.expired {
        count_ended(ctx, &stake);
        ctx.select(ended.key.db);
        ctx.notify_named(c"lock.expire", &ended.key.name);
    }
    Some(ended)
}

/// Counts a hold whose lease was over.
pub(crate) fn count_ended(ctx: &Context<'_>, stake: &Stake) {
    totals::get(ctx).expiries.add_one();
    let held = stake.deadline.millis_since(stake.since);
    totals::hold_times(ctx).borrow_mut().record(held);
}
