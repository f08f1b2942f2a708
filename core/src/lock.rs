//! One lock: who holds it. No rules here: which requests are admitted is in `admission.rs`, what each command does in `live.rs`.
//!
//! One holder, the common case, lives in the lock itself. Several (they can only be readers) live
//! together (`readers.rs`).

use crate::admission::{Holders, compatible};
use crate::owner::{Owner, OwnerRef};
use crate::readers::{Readers, Remains, Shared};
use crate::request::Terms;
use crate::stake::{Packed, Stake};
use crate::types::{Instant, Mode};

/// The holds on one key. The only order that they have is by owner.
#[derive(Clone, Debug, Default)]
pub struct Lock(Holdings);

#[derive(Clone, Debug, Default)]
enum Holdings {
    #[default]
    Free,
    One(Owner, Packed),
    /// Two or more, all of them readers.
    Many(Shared),
}

impl Lock {
    /// A free lock.
    pub const fn free() -> Self {
        Self(Holdings::Free)
    }

    /// Nobody holds, not even for a lease that is over.
    pub fn is_free(&self) -> bool {
        matches!(self.0, Holdings::Free)
    }

    /// How many owners hold, including those whose lease is over and that were not dropped yet.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Holdings::Free => 0,
            Holdings::One(..) => 1,
            Holdings::Many(readers) => readers.with(|readers| readers.len()),
        }
    }

    /// The same as [`Self::is_free`].
    pub fn is_empty(&self) -> bool {
        self.is_free()
    }

    /// The hold of `owner`, whose lease may be over.
    #[inline]
    pub fn hold(&self, owner: OwnerRef<'_>) -> Option<Stake> {
        match &self.0 {
            Holdings::Free => None,
            Holdings::One(holder, stake) => (holder.as_ref() == owner).then(|| stake.unpack()),
            Holdings::Many(readers) => readers.with(|readers| readers.get(owner)),
        }
    }

    /// When the first lease is over; `None` if nobody holds.
    #[inline]
    pub fn next_deadline(&self) -> Option<Instant> {
        match &self.0 {
            Holdings::Free => None,
            Holdings::One(_, stake) => Some(stake.deadline()),
            Holdings::Many(readers) => readers.with(|readers| readers.next_deadline()),
        }
    }

    /// There is a hold whose lease is over at `now`.
    pub fn has_ended_holds(&self, now: Instant) -> bool {
        self.next_deadline().is_some_and(|first| first <= now)
    }

    /// The hold of the first owner in byte order. It shows the mode of all: a writer holds alone.
    pub(crate) fn first(&self) -> Option<Stake> {
        match &self.0 {
            Holdings::Free => None,
            Holdings::One(_, stake) => Some(stake.unpack()),
            Holdings::Many(readers) => readers.with(|readers| readers.first()),
        }
    }

    /// Every hold, those included whose lease is over, by owner in byte order. They are copied.
    pub fn holds(&self) -> impl Iterator<Item = (Owner, Stake)> {
        let holds = self.page(None, usize::MAX).into_iter();
        holds.map(|(owner, stake)| (owner, stake.unpack()))
    }

    /// Up to `len` holds after `last` by owner in byte order, or from the first one on, those included whose lease is over.
    pub(crate) fn page(&self, last: Option<&Owner>, len: usize) -> Vec<(Owner, Packed)> {
        match &self.0 {
            Holdings::Free => Vec::new(),
            // A second page follows a full one only.
            Holdings::One(owner, stake) => vec![(owner.clone(), *stake)],
            Holdings::Many(readers) => readers.with(|readers| readers.page(last, len)),
        }
    }

    /// Bytes allocated outside the lock itself, as far as they can be known.
    pub fn heap_size(&self) -> usize {
        match &self.0 {
            Holdings::Free => 0,
            Holdings::One(owner, _) => owner.heap_size(),
            Holdings::Many(readers) => readers.with(|readers| readers.size()),
        }
    }
}

/// The lock at one moment.
impl Lock {
    /// How many owners hold at `now`.
    pub fn live_len(&self, now: Instant) -> usize {
        match &self.0 {
            Holdings::Free => 0,
            Holdings::One(_, stake) => usize::from(!stake.is_over(now)),
            Holdings::Many(readers) => readers.with(|readers| readers.live(now).len),
        }
    }

    /// The sum of the read counts of all that hold at `now`.
    fn live_reads(&self, now: Instant) -> u64 {
        match &self.0 {
            Holdings::Free => 0,
            // A lock is opened without a single hold whose lease is over.
            Holdings::One(_, stake) => u64::from(stake.reads()),
            Holdings::Many(readers) => readers.with(|readers| readers.live(now).reads),
        }
    }

    /// The hold of `owner` at `now`.
    pub fn live_hold(&self, owner: OwnerRef<'_>, now: Instant) -> Option<Stake> {
        self.hold(owner).filter(|stake| !stake.is_over(now))
    }

    /// The mode it is held in at `now`; `None` if nobody holds.
    pub fn mode(&self, now: Instant) -> Option<Mode> {
        let mode = self.first()?.mode();
        (self.live_len(now) > 0).then_some(mode)
    }

    /// When the first lease ends that is not over at `now`.
    pub fn next_live_deadline(&self, now: Instant) -> Option<Instant> {
        match &self.0 {
            Holdings::Free | Holdings::One(..) => self.next_deadline().filter(|first| *first > now),
            Holdings::Many(readers) => readers.with(|readers| readers.next_live_deadline(now)),
        }
    }

    /// Up to `len` of the holds at `now`, by owner in byte order.
    pub fn live_holds(&self, now: Instant, len: usize) -> Vec<(Owner, Stake)> {
        match &self.0 {
            Holdings::Free | Holdings::One(..) => {
                let live = self.holds().filter(|(_, stake)| !stake.is_over(now));
                live.take(len).collect()
            }
            Holdings::Many(readers) => {
                let live = readers.with(|readers| readers.live_holds(now, len));
                let unpack = |(owner, stake): (Owner, Packed)| (owner, stake.unpack());
                live.into_iter().map(unpack).collect()
            }
        }
    }

    /// What the limit of a request leaves beside the holds at `now`; `None` without a limit.
    pub(crate) fn room(&self, terms: &Terms, now: Instant) -> Option<u32> {
        let limit = terms.sharing.limit()?;
        Some(Holders::room_beside(self.live_reads(now), limit))
    }
}

/// What a search that spans keys sees of a lock, which it cannot open.
impl Lock {
    /// A lock that shows these holders: a single one as it is now. Several readers are shared, because a copy would cost too much: every
    /// change to them is seen at once, and nobody once the lock is gone or has one holder left.
    #[must_use]
    pub fn observe(&self) -> Self {
        Self(match &self.0 {
            Holdings::Many(readers) => Holdings::Many(readers.observe()),
            one => one.clone(),
        })
    }

    /// The owner that holds alone; `None` if nobody holds, or several did when they were observed.
    pub(crate) fn only_owner(&self) -> Option<&Owner> {
        match &self.0 {
            Holdings::One(owner, _) => Some(owner),
            Holdings::Free | Holdings::Many(_) => None,
        }
    }

    /// The only owner that holds at `now`, if it reads, and its read count.
    pub(crate) fn only_reader(&self, now: Instant) -> Option<(Owner, u32)> {
        let (owner, stake) = match &self.0 {
            Holdings::Free => None,
            Holdings::One(owner, stake) => Some((owner.clone(), *stake)),
            Holdings::Many(readers) => readers.with(|readers| readers.last_if_alone(now)),
        }?;
        let reads = stake.unpack().mode() == Mode::Read && !stake.is_over(now);
        reads.then(|| (owner, stake.reads()))
    }

    /// Another owner of `owner`'s task (the same up to the last `##`) than `except` holds at `now`. O(log n), and one step for each of the
    /// task that is passed by.
    pub fn is_held_for_task(
        &self,
        owner: OwnerRef<'_>,
        except: Option<OwnerRef<'_>>,
        now: Instant,
    ) -> bool {
        match &self.0 {
            Holdings::Free => false,
            Holdings::One(holder, stake) => {
                let holder = holder.as_ref();
                let counts = !stake.is_over(now) && except != Some(holder);
                counts && holder.task_owner() == owner.task_owner()
            }
            Holdings::Many(readers) => readers
                .with(|readers| readers.reads_for_task(owner, except, |stake| !stake.is_over(now))),
        }
    }
}

/// Changes, as decided by whoever calls.
impl Lock {
    /// Takes over a hold that was decided elsewhere: by the primary, or before a restart. Removes holds that contradict it, because the
    /// newer fact is the true one.
    pub fn put(&mut self, owner: OwnerRef<'_>, stake: Stake) {
        let is_only = self.len() == 1 && self.hold(owner).is_some();
        let others = self.first().filter(|_| !is_only);
        if others.is_some_and(|other| !compatible(other.mode(), stake.mode())) {
            *self = Self::free();
        }
        let replace = |old: &mut Stake| Some(std::mem::replace(old, stake));
        if self.alter(owner, replace).is_none() {
            self.insert(owner.to_owner(), stake);
        }
    }

    /// Adds a hold of an owner that has none. If there are others, it and they must be readers'.
    pub(crate) fn insert(&mut self, owner: Owner, stake: Stake) {
        match &mut self.0 {
            Holdings::Free => self.0 = Holdings::One(owner, Packed::of(&stake)),
            Holdings::One(..) => {
                let readers = Shared::default();
                readers.with(|readers| {
                    if let Holdings::One(first, first_stake) = std::mem::take(&mut self.0) {
                        readers.insert(first, first_stake.unpack());
                    }
                    readers.insert(owner, stake);
                });
                self.0 = Holdings::Many(readers);
            }
            Holdings::Many(readers) => readers.with(|readers| readers.insert(owner, stake)),
        }
    }

    /// Changes the hold of `owner`, and removes it if nothing of it is left. `None` if there is none, or if `act` returns that.
    pub(crate) fn alter<T>(
        &mut self,
        owner: OwnerRef<'_>,
        act: impl FnOnce(&mut Stake) -> Option<T>,
    ) -> Option<T> {
        match &mut self.0 {
            Holdings::Free => None,
            Holdings::One(holder, packed) => {
                if holder.as_ref() != owner {
                    return None;
                }
                let mut stake = packed.unpack();
                let outcome = act(&mut stake);
                if stake.total() == 0 {
                    *self = Self::free();
                } else {
                    *packed = Packed::of(&stake);
                }
                outcome
            }
            Holdings::Many(readers) => {
                let outcome = readers.with(|readers| readers.alter(owner, act));
                self.shrink();
                outcome
            }
        }
    }

    /// Drops the hold of `owner`.
    pub fn remove(&mut self, owner: OwnerRef<'_>) -> Option<Stake> {
        self.alter(owner, |stake| {
            let gone = *stake;
            stake.clear();
            Some(gone)
        })
    }

    /// One reader needs no map.
    fn shrink(&mut self) {
        let Holdings::Many(readers) = &self.0 else {
            return;
        };
        let last = readers.with(|readers| (readers.len() <= 1).then(|| readers.pop_next()));
        if let Some(last) = last {
            *self = Self::of(last);
        }
    }

    fn of(hold: Option<(Owner, Stake)>) -> Self {
        Self(match hold {
            Some((owner, stake)) => Holdings::One(owner, Packed::of(&stake)),
            None => Holdings::Free,
        })
    }

    /// Removes every hold. Those of several readers are returned, because dropping them takes time.
    pub fn clear(&mut self) -> Option<Box<Remains>> {
        match std::mem::take(&mut self.0) {
            Holdings::Free | Holdings::One(..) => None,
            Holdings::Many(readers) => Some(Box::new(Remains::of(readers.with(std::mem::take)))),
        }
    }

    /// Removes up to `few` of the holds whose lease is over, and passes each to `ended`. But if more are over and at most one would remain,
    /// it keeps that one and returns the others in one piece.
    pub(crate) fn drop_over(
        &mut self,
        now: Instant,
        few: usize,
        mut ended: impl FnMut(&Owner, &Stake),
    ) -> Option<Box<Remains>> {
        if let Holdings::Many(readers) = &self.0 {
            let gone = readers.with(|readers| {
                let live = readers.live(now).len;
                let whole = live <= 1 && readers.len() - live > few;
                whole.then(|| std::mem::take(readers))
            });
            if let Some(mut gone) = gone {
                *self = Self::of(gone.pop_last_live(now));
                return Some(Box::new(Remains::of(gone)));
            }
        }
        for _ in 0..few {
            let Some((owner, stake)) = self.pop_over(now) else {
                break;
            };
            ended(&owner, &stake);
        }
        None
    }

    /// Removes the hold whose lease is over for the longest, if there is one.
    fn pop_over(&mut self, now: Instant) -> Option<(Owner, Stake)> {
        if !self.has_ended_holds(now) {
            return None;
        }
        if let Holdings::Many(readers) = &self.0 {
            let gone = readers.with(Readers::pop_next);
            self.shrink();
            return gone;
        }
        match std::mem::take(&mut self.0) {
            Holdings::One(owner, stake) => Some((owner, stake.unpack())),
            Holdings::Free | Holdings::Many(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stake::Touched;
    use crate::types::Token;

    #[test]
    fn the_only_reader_reads_until_its_lease_is_over() {
        let name = OwnerRef::new(b"a").expect("1 to 255 bytes");
        let reads = |write, ms| {
            let mut lock = Lock::free();
            let stake = Stake {
                write,
                read: 3,
                token: Token::MAX,
                deadline: Instant::from_millis(100),
                since: Instant::default(),
                touched: Touched::by(0),
                revoked: false,
            };
            lock.put(name, stake);
            let found = lock.observe().only_reader(Instant::from_millis(ms));
            found.map(|(owner, reads)| (owner.as_ref() == name, reads))
        };
        assert_eq!(reads(0, 99), Some((true, 3)));
        assert_eq!(reads(0, 100), None);
        assert_eq!(reads(0, 101), None);
        assert_eq!(reads(1, 99), None);
    }
}
