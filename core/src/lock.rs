//! One lock: who holds it. What each command does to the holds is in `live.rs`.

use crate::admission::{self, Holders, Turn, compatible};
use crate::hold::{Holds, Store};
use crate::observed::Observed;
use crate::owner::{Owner, OwnerRef};
use crate::remains::Remains;
use crate::request::{Request, Terms};
use crate::stake::Stake;
use crate::types::{Instant, Mode};

/// The holds on one key.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    pub(crate) store: Store,
}

impl Lock {
    /// A free lock.
    pub const fn free() -> Self {
        Self { store: Store::Free }
    }

    /// Nobody holds, not even for a lease that is over.
    pub fn is_free(&self) -> bool {
        matches!(self.store, Store::Free)
    }

    /// How many owners hold, including those whose lease is over and that were not dropped yet.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// The same as [`Self::is_free`].
    pub fn is_empty(&self) -> bool {
        self.is_free()
    }

    /// When the first lease is over; `None` if nobody holds.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.store.next_deadline()
    }

    /// Every hold, those included whose lease is over, by owner in byte order.
    pub fn holds(&self) -> Holds<'_> {
        self.store.iter()
    }

    /// The hold of `owner`, whose lease may be over.
    pub fn hold(&self, owner: OwnerRef<'_>) -> Option<Stake> {
        self.store.get(owner)
    }

    /// Bytes allocated outside the lock itself.
    pub fn heap_size(&self) -> usize {
        self.store.heap_size()
    }

    /// When the first lease ends that is not over at `now`.
    pub fn next_live_deadline(&self, now: Instant) -> Option<Instant> {
        self.store.next_live_deadline(now)
    }

    /// There is a hold whose lease is over at `now`.
    pub fn has_ended_holds(&self, now: Instant) -> bool {
        self.store.next_deadline().is_some_and(|first| first <= now)
    }

    /// Takes over a hold that was decided elsewhere: by the primary, or before a restart. Removes holds that contradict it, because the
    /// newer fact is the true one.
    pub fn put(&mut self, owner: OwnerRef<'_>, stake: Stake) {
        let is_only = self.len() == 1 && self.store.get(owner).is_some();
        // Several holders are all readers, so the first shows the mode of all.
        let others = self.store.first().filter(|_| !is_only);
        if others.is_some_and(|other| !compatible(other.mode(), stake.mode())) {
            self.store = Store::Free;
        }
        let replace = |old: &mut Stake| Some(std::mem::replace(old, stake));
        if self.store.alter(owner, replace).is_none() {
            self.store.insert(owner.to_owner(), stake);
        }
    }

    /// Drops the hold of `owner`, as decided elsewhere.
    pub fn remove(&mut self, owner: OwnerRef<'_>) -> Option<Stake> {
        self.store.remove(owner)
    }

    /// Removes every hold, as decided elsewhere. Returns the holds of several readers for the caller to drop.
    pub fn clear(&mut self) -> Option<Box<Remains>> {
        self.store.clear()
    }
}

/// A snapshot of a lock.
impl Lock {
    /// How many owners hold at `now`.
    pub fn live_len(&self, now: Instant) -> usize {
        self.store.live_len(now)
    }

    /// The mode it is held in at `now`; `None` if nobody holds.
    pub fn mode(&self, now: Instant) -> Option<Mode> {
        // A writer holds alone, so the first hold shows the mode of all.
        let mode = self.store.first()?.mode();
        (self.live_len(now) > 0).then_some(mode)
    }

    /// True if `request` would be granted at `now` as the next one. That may be wrong while there are holds that are over and not dropped
    /// yet.
    pub fn may_admit(&self, request: &Request<'_>, now: Instant) -> bool {
        let holders = Holders {
            mode: self.mode(now),
            no_other: self.live_len(now) == 1,
            room: self.room(&request.terms, now),
        };
        let own = self.hold(request.owner);
        match own.filter(|stake| !stake.is_over(now)) {
            Some(stake) => admission::admit_more(&request.terms, &stake, holders).is_ok(),
            None => admission::admit_new(&request.terms, holders, Turn::First).is_ok(),
        }
    }

    /// What the limit of a request leaves beside the holds at `now`; `None` without a limit.
    pub(crate) fn room(&self, terms: &Terms, now: Instant) -> Option<u32> {
        let limit = terms.sharing.limit()?;
        Some(Holders::room_beside(self.store.live_reads(now), limit))
    }

    /// The holders, for code that needs them without the lock.
    pub fn observe(&self) -> Observed {
        self.store.observe()
    }

    /// Up to `len` of the holds at `now`, by owner in byte order.
    pub fn live_holds(&self, now: Instant, len: usize) -> Vec<(Owner, Stake)> {
        self.store.live(now, len)
    }
}
