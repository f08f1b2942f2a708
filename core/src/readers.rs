//! The holds of several owners on one lock, who can only be readers. No rules here: see `live.rs`.
//!
//! They are ordered by owner, and by when their leases end. How many have ended, and what the read counts of those add up to, is counted up to the
//! last moment that was asked about. So each operation on one of them is O(log n), and a question about all whose lease is not over costs as many
//! steps as leases have ended since the last one: each lease is counted once, by a step to the next entry of one tree.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::owner::{Owner, OwnerRef};
use crate::stake::{Packed, Stake};
use crate::types::Instant;

/// The readers as their lock keeps them, or as an observer of it sees them. A clone of the lock's is a copy of its own.
#[derive(Debug)]
pub(crate) enum Shared {
    Kept(Arc<Mutex<Readers>>),
    /// Nobody, once the lock is gone or has one holder at most.
    Observed(Weak<Mutex<Readers>>),
}

impl Default for Shared {
    fn default() -> Self {
        Self::Kept(Arc::default())
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        match self {
            Self::Kept(_) => Self::Kept(Arc::new(Mutex::new(self.with(|readers| readers.clone())))),
            Self::Observed(readers) => Self::Observed(readers.clone()),
        }
    }
}

impl Shared {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Readers) -> T) -> T {
        let observed;
        let readers = match self {
            Self::Kept(readers) => readers,
            Self::Observed(readers) => {
                observed = readers.upgrade().unwrap_or_default();
                &observed
            }
        };
        // No code panics while the readers are half changed, so a poisoned mutex is still sound.
        act(&mut readers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn observe(&self) -> Self {
        Self::Observed(match self {
            Self::Kept(readers) => Arc::downgrade(readers),
            Self::Observed(readers) => readers.clone(),
        })
    }
}

/// Many holds that ended together. No rule counts them any more.
///
/// Dropping a hundred thousand of them, and notifying subscribers of each, takes too long for one turn. So a lock gives them away whole,
/// and the module drops a few at a time.
#[derive(Debug, Default)]
pub struct Remains {
    readers: Readers,
    others: Vec<(Owner, Stake)>,
}

impl Remains {
    pub(crate) fn of(readers: Readers) -> Self {
        let others = Vec::new();
        Self { readers, others }
    }

    pub(crate) fn add(&mut self, owner: Owner, stake: Stake) {
        self.others.push((owner, stake));
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.readers.len() + self.others.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops any one of them.
    pub fn pop(&mut self) -> Option<(Owner, Stake)> {
        self.others.pop().or_else(|| self.readers.pop_apart())
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Readers {
    by_owner: BTreeMap<Owner, Packed>,
    /// The read count of each, by when its lease ends.
    by_deadline: BTreeMap<(Instant, Owner), u32>,
    /// The sum of the read counts of all.
    reads: u64,
    /// Those whose lease is over at `counted_at`.
    over: Sum,
    counted_at: Instant,
}

/// How many owners whose names begin like the task's are checked to find out whether one of the task reads.
const MOST_OF_A_TASK: usize = 16;

/// Several holds together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// How many there are.
    pub(crate) len: usize,
    /// What their read counts add up to.
    pub(crate) reads: u64,
}

impl Readers {
    pub(crate) fn len(&self) -> usize {
        self.by_owner.len()
    }

    pub(crate) fn get(&self, owner: OwnerRef<'_>) -> Option<Stake> {
        let stake = self.by_owner.get(&owner.to_owner())?;
        Some(stake.unpack())
    }

    pub(crate) fn insert(&mut self, owner: Owner, stake: Stake) {
        let packed = Packed::of(&stake);
        self.enter(&owner, packed);
        self.by_owner.insert(owner, packed);
    }

    fn enter(&mut self, owner: &Owner, stake: Packed) {
        let place = (stake.deadline(), owner.clone());
        self.by_deadline.insert(place, stake.reads());
        self.count_in(stake);
    }

    fn leave(&mut self, owner: &Owner, stake: Packed) {
        self.by_deadline.remove(&(stake.deadline(), owner.clone()));
        self.count_out(stake);
    }

    fn count_in(&mut self, stake: Packed) {
        self.reads += u64::from(stake.reads());
        if stake.is_over(self.counted_at) {
            self.over.len += 1;
            self.over.reads += u64::from(stake.reads());
        }
    }

    fn count_out(&mut self, stake: Packed) {
        self.reads -= u64::from(stake.reads());
        if stake.is_over(self.counted_at) {
            self.over.len -= 1;
            self.over.reads -= u64::from(stake.reads());
        }
    }

    /// Changes the hold of `owner`, which goes if nothing of it is left. `None` if there is none, or if `act` returns that.
    pub(crate) fn alter<T>(
        &mut self,
        owner: OwnerRef<'_>,
        act: impl FnOnce(&mut Stake) -> Option<T>,
    ) -> Option<T> {
        let owner = owner.to_owner();
        let Entry::Occupied(mut entry) = self.by_owner.entry(owner.clone()) else {
            return None;
        };
        let before = *entry.get();
        let mut stake = before.unpack();
        let outcome = act(&mut stake);
        let after = Packed::of(&stake);
        if stake.total() == 0 {
            entry.remove();
            self.leave(&owner, before);
            return outcome;
        }
        entry.insert(after);
        if before.deadline() != after.deadline() {
            self.by_deadline.remove(&(before.deadline(), owner.clone()));
        }
        self.by_deadline
            .insert((after.deadline(), owner), after.reads());
        self.count_out(before);
        self.count_in(after);
        outcome
    }

    pub(crate) fn remove(&mut self, owner: OwnerRef<'_>) -> Option<Stake> {
        let owner = owner.to_owner();
        let stake = self.by_owner.remove(&owner)?;
        self.leave(&owner, stake);
        Some(stake.unpack())
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let ((deadline, _), _) = self.by_deadline.first_key_value()?;
        Some(*deadline)
    }

    /// When the first lease ends that is not over at `now`.
    pub(crate) fn next_live_deadline(&self, now: Instant) -> Option<Instant> {
        let (deadline, _, _) = self.live_by_deadline(now).next()?;
        Some(deadline)
    }

    /// Those whose lease is not over at `now`, by when it ends, with their read counts.
    fn live_by_deadline(&self, now: Instant) -> impl Iterator<Item = (Instant, &Owner, u32)> {
        // The first owner in byte order.
        let first = OwnerRef::new(b"\0").map(OwnerRef::to_owner);
        let from = first.map(|first| (now.after(1), first));
        let live = from.map(|from| self.by_deadline.range(from..));
        live.into_iter()
            .flatten()
            .map(|((deadline, owner), reads)| (*deadline, owner, *reads))
    }

    /// Those whose lease is not over at `now`.
    pub(crate) fn live(&mut self, now: Instant) -> Sum {
        let all = Sum {
            len: self.len(),
            reads: self.reads,
        };
        let last = self.by_deadline.last_key_value();
        if last.is_none_or(|((deadline, _), _)| *deadline <= now) {
            (self.over, self.counted_at) = (all, now);
        }
        self.count_until(now);
        Sum {
            len: all.len - self.over.len,
            reads: all.reads - self.over.reads,
        }
    }

    /// Counts those whose lease has ended since the last time.
    fn count_until(&mut self, now: Instant) {
        if now < self.counted_at {
            (self.over, self.counted_at) = (Sum::default(), Instant::default());
        }
        let ended = self.live_by_deadline(self.counted_at);
        let ended = ended.take_while(|(deadline, _, _)| *deadline <= now);
        let mut over = self.over;
        for (_, _, reads) in ended {
            over.len += 1;
            over.reads += u64::from(reads);
        }
        (self.over, self.counted_at) = (over, now);
    }

    /// The only hold whose lease is not over at `now`.
    pub(crate) fn last_if_alone(&self, now: Instant) -> Option<(Owner, Packed)> {
        let mut live = self.live_by_deadline(now);
        let (_, owner, _) = live.next()?;
        let is_alone = live.next().is_none();
        let stake = *self.by_owner.get(owner)?;
        is_alone.then(|| (owner.clone(), stake))
    }

    /// Removes the hold whose lease ends first.
    pub(crate) fn pop_next(&mut self) -> Option<(Owner, Stake)> {
        let ((_, owner), _) = self.by_deadline.first_key_value()?;
        let owner = owner.clone();
        let stake = self.remove(owner.as_ref())?;
        Some((owner, stake))
    }

    /// Removes the hold whose lease ends last, if it is not over at `now`.
    pub(crate) fn pop_last_live(&mut self, now: Instant) -> Option<(Owner, Stake)> {
        let ((deadline, owner), _) = self.by_deadline.last_key_value()?;
        if *deadline <= now {
            return None;
        }
        let owner = owner.clone();
        let stake = self.remove(owner.as_ref())?;
        Some((owner, stake))
    }

    /// Removes any one of them without counting: for holds that no rule sees any more.
    pub(crate) fn pop_apart(&mut self) -> Option<(Owner, Stake)> {
        self.by_deadline.pop_first();
        let (owner, stake) = self.by_owner.pop_first()?;
        Some((owner, stake.unpack()))
    }

    /// Up to `len` of those whose lease is not over at `now`, by owner in byte order.
    pub(crate) fn live_holds(&mut self, now: Instant, len: usize) -> Vec<(Owner, Packed)> {
        let live = self.live(now).len;
        // A walk in byte order passes about `len * self.len() / live` holds; the other way sorts the `live` ones. Take the shorter.
        if live * live >= len.min(live) * self.len() {
            let found = self.iter().filter(|(_, stake)| !stake.is_over(now));
            return found.take(len).map(copied).collect();
        }
        let live = self.live_by_deadline(now).map(|(_, owner, _)| owner);
        let mut found: Vec<&Owner> = live.collect();
        found.sort_unstable();
        let found = found.into_iter().take(len);
        let found = found.filter_map(|owner| self.by_owner.get_key_value(owner));
        found
            .map(|(owner, stake)| (owner.clone(), *stake))
            .collect()
    }

    /// By owner in byte order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Owner, Packed)> {
        self.by_owner.iter().map(|(owner, stake)| (owner, *stake))
    }

    /// The first one by owner in byte order.
    pub(crate) fn first(&self) -> Option<Stake> {
        let (_, stake) = self.by_owner.first_key_value()?;
        Some(stake.unpack())
    }

    /// Up to `len` of those after `last`, or from the first one on.
    pub(crate) fn page(&self, last: Option<&Owner>, len: usize) -> Vec<(Owner, Packed)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.by_owner.range((from, Bound::Unbounded)).take(len);
        let behind = behind.map(|(owner, stake)| (owner, *stake));
        behind.map(copied).collect()
    }

    /// An owner of `owner`'s task other than `except` reads by a hold that `counts`. The task's owners follow the task's own name, and in a crowd
    /// only the first ones count.
    pub(crate) fn reads_for_task(
        &self,
        owner: OwnerRef<'_>,
        except: Option<OwnerRef<'_>>,
        counts: impl Fn(Packed) -> bool,
    ) -> bool {
        let task = owner.task_owner();
        let mut behind = self.by_owner.range(task.to_owner()..).take(MOST_OF_A_TASK);
        behind.any(|(reader, stake)| {
            let reader = reader.as_ref();
            counts(*stake) && except != Some(reader) && reader.task_owner() == task
        })
    }

    /// Bytes allocated, this value itself included.
    pub(crate) fn size(&self) -> usize {
        // A node of a B-tree has 11 entries, and is about two thirds full.
        let entry = 2 * size_of::<Owner>() + size_of::<Packed>() + size_of::<(Instant, u32)>();
        let owners: usize = match self.by_owner.first_key_value() {
            Some((owner, _)) => 2 * owner.heap_size() * self.len(),
            None => 0,
        };
        let room = 11 + self.len() * 3 / 2;
        size_of::<Self>() + room * entry + owners
    }
}

fn copied((owner, stake): (&Owner, Packed)) -> (Owner, Packed) {
    (owner.clone(), stake)
}
