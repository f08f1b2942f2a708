//! The holds of several owners on one lock, who can only be readers. No rules here: see `live.rs`.
//!
//! A map by owner, and beside it their deadlines in order, so that everything about one of them
//! stays O(log n). Nothing depends on the order in which they came.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::owner::{Owner, OwnerRef};
use crate::stake::{Packed, Stake};
use crate::types::Instant;

#[derive(Clone, Debug, Default)]
pub(crate) struct Readers {
    by_owner: BTreeMap<Owner, Packed>,
    by_deadline: BTreeSet<(Instant, Owner)>,
    over: Over,
}

/// How many leases are over, so that a crowd that has ended is counted once.
#[derive(Clone, Copy, Debug, Default)]
struct Over {
    /// As of this moment; later ones are not counted.
    at: Instant,
    count: usize,
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
        let stake = Packed::of(&stake);
        self.link(stake.deadline(), owner.clone());
        self.by_owner.insert(owner, stake);
    }

    /// Changes the hold of `owner`, which goes if nothing of it is left. Looks it up once.
    pub(crate) fn alter<T>(
        &mut self,
        owner: OwnerRef<'_>,
        act: impl FnOnce(&mut Stake) -> T,
    ) -> Option<T> {
        let Entry::Occupied(mut entry) = self.by_owner.entry(owner.to_owner()) else {
            return None;
        };
        let before = entry.get().deadline();
        let mut stake = entry.get().unpack();
        let outcome = act(&mut stake);
        if stake.total() == 0 {
            let (owner, _) = entry.remove_entry();
            self.unlink(before, owner);
            return Some(outcome);
        }
        let stake = Packed::of(&stake);
        entry.insert(stake);
        if stake.deadline() != before {
            let owner = entry.key().clone();
            self.link(stake.deadline(), owner.clone());
            self.unlink(before, owner);
        }
        Some(outcome)
    }

    pub(crate) fn remove(&mut self, owner: OwnerRef<'_>) -> Option<Stake> {
        let (owner, stake) = self.by_owner.remove_entry(&owner.to_owner())?;
        self.unlink(stake.deadline(), owner);
        Some(stake.unpack())
    }

    fn link(&mut self, deadline: Instant, owner: Owner) {
        self.over.count += usize::from(deadline <= self.over.at);
        self.by_deadline.insert((deadline, owner));
    }

    fn unlink(&mut self, deadline: Instant, owner: Owner) {
        self.over.count -= usize::from(deadline <= self.over.at);
        self.by_deadline.remove(&(deadline, owner));
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let (deadline, _) = self.by_deadline.first()?;
        Some(*deadline)
    }

    pub(crate) fn last_deadline(&self) -> Option<Instant> {
        let (deadline, _) = self.by_deadline.last()?;
        Some(*deadline)
    }

    /// When the first lease ends that is not over at `now`.
    pub(crate) fn next_live_deadline(&self, now: Instant) -> Option<Instant> {
        let (deadline, _) = self.by_deadline.range(first_after(now)..).next()?;
        Some(*deadline)
    }

    /// How many leases are over at `now`. Looks once at each that has ended since the last time.
    pub(crate) fn over(&mut self, now: Instant) -> usize {
        if now < self.over.at {
            self.over = Over::default();
        }
        let (from, to) = (first_after(self.over.at), first_after(now));
        let since = self.by_deadline.range(from..to).count();
        self.over = Over {
            at: now,
            count: self.over.count + since,
        };
        self.over.count
    }

    /// More than `few` leases are over at `now`.
    pub(crate) fn more_are_over_than(&self, few: usize, now: Instant) -> bool {
        let next = self.by_deadline.iter().nth(few);
        next.is_some_and(|(deadline, _)| *deadline <= now)
    }

    /// At most one lease is not over at `now`.
    pub(crate) fn one_lives_at_most(&self, now: Instant) -> bool {
        let second_last = self.by_deadline.iter().rev().nth(1);
        second_last.is_none_or(|(deadline, _)| *deadline <= now)
    }

    /// Removes the hold whose lease ends first.
    pub(crate) fn pop_next(&mut self) -> Option<(Owner, Stake)> {
        let (deadline, owner) = self.by_deadline.pop_first()?;
        self.over.count -= usize::from(deadline <= self.over.at);
        let (owner, stake) = self.by_owner.remove_entry(&owner)?;
        Some((owner, stake.unpack()))
    }

    /// Removes the hold whose lease ends last, if it is not over at `now`.
    pub(crate) fn pop_last_live(&mut self, now: Instant) -> Option<(Owner, Stake)> {
        let (deadline, owner) = self.by_deadline.last()?;
        if *deadline <= now {
            return None;
        }
        let owner = owner.clone();
        let stake = self.remove(owner.as_ref())?;
        Some((owner, stake))
    }

    /// Takes the map and the order apart, each from its own end: for holds that count no more.
    pub(crate) fn pop_apart(&mut self) -> Option<(Owner, Stake)> {
        self.by_deadline.pop_last();
        let (owner, stake) = self.by_owner.pop_first()?;
        Some((owner, stake.unpack()))
    }

    /// Up to `len` of those whose lease is not over at `now`, by owner in byte order.
    pub(crate) fn live(&mut self, now: Instant, len: usize) -> Vec<(Owner, Packed)> {
        let over = self.over(now);
        let copy = |(owner, stake): (&Owner, &Packed)| (owner.clone(), *stake);
        if over <= self.len() - over {
            let live = self
                .by_owner
                .iter()
                .filter(|(_, stake)| !stake.is_over(now));
            return live.take(len).map(copy).collect();
        }
        // Few are left among many that have ended.
        let live = self.by_deadline.range(first_after(now)..).take(len);
        let found = live.filter_map(|(_, owner)| self.by_owner.get_key_value(owner));
        let mut found: Vec<_> = found.map(copy).collect();
        found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        found
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

    /// Those behind `last`, or from the first one on, up to `len` of them.
    pub(crate) fn page(&self, last: Option<&Owner>, len: usize) -> Vec<(Owner, Packed)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.by_owner.range((from, Bound::Unbounded)).take(len);
        behind
            .map(|(owner, stake)| (owner.clone(), *stake))
            .collect()
    }

    /// Those whose owner begins with `prefix`.
    pub(crate) fn beginning_with(&self, prefix: &[u8]) -> impl Iterator<Item = (&Owner, Packed)> {
        let from = OwnerRef::new(prefix).map(OwnerRef::to_owner);
        let behind = from.map(|from| self.by_owner.range(from..));
        behind
            .into_iter()
            .flatten()
            .take_while(move |(owner, _)| owner.text().starts_with(prefix))
            .map(|(owner, stake)| (owner, *stake))
    }

    /// Bytes allocated, this value itself included.
    pub(crate) fn size(&self) -> usize {
        // The nodes of a B-tree have room for 11 entries, and are about two thirds full.
        let entry = size_of::<(Owner, Packed)>() + size_of::<(Instant, Owner)>();
        let owners: usize = match self.by_owner.first_key_value() {
            Some((owner, _)) => 2 * owner.heap_size() * self.len(),
            None => 0,
        };
        let room = 11 + self.len() * 3 / 2;
        size_of::<Self>() + room * entry + owners
    }
}

/// Ahead of every entry that ends after `now`, and behind the others.
fn first_after(now: Instant) -> (Instant, Owner) {
    (now.after(1), Owner::FIRST)
}
