//! The holds of several owners on one lock, who can only be readers. No rules here: see `lock.rs`.
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
        self.by_deadline.insert((stake.deadline(), owner.clone()));
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
            self.by_deadline.remove(&(before, owner));
            return Some(outcome);
        }
        let stake = Packed::of(&stake);
        entry.insert(stake);
        if stake.deadline() != before {
            let owner = entry.key().clone();
            self.by_deadline.insert((stake.deadline(), owner.clone()));
            self.by_deadline.remove(&(before, owner));
        }
        Some(outcome)
    }

    pub(crate) fn remove(&mut self, owner: OwnerRef<'_>) -> Option<Stake> {
        let (owner, stake) = self.by_owner.remove_entry(&owner.to_owner())?;
        self.by_deadline.remove(&(stake.deadline(), owner));
        Some(stake.unpack())
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let (deadline, _) = self.by_deadline.first()?;
        Some(*deadline)
    }

    pub(crate) fn last_deadline(&self) -> Option<Instant> {
        let (deadline, _) = self.by_deadline.last()?;
        Some(*deadline)
    }

    /// How many leases are over at `now`.
    pub(crate) fn over(&self, now: Instant) -> usize {
        let deadlines = self.by_deadline.iter().map(|(deadline, _)| *deadline);
        deadlines.take_while(|deadline| *deadline <= now).count()
    }

    /// Removes the hold whose lease ends first.
    pub(crate) fn pop_next(&mut self) -> Option<(Owner, Stake)> {
        let (_, owner) = self.by_deadline.pop_first()?;
        let (owner, stake) = self.by_owner.remove_entry(&owner)?;
        Some((owner, stake.unpack()))
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
