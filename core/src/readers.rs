//! The holds of several owners on one lock, who can only be readers. No rules here: see `lock.rs`.
//!
//! A map by owner, and beside it their deadlines in order, so that everything about one of them
//! stays O(log n). Nothing depends on the order in which they came.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, btree_map};

use crate::owner::{Owner, OwnerRef};
use crate::stake::{Packed, Stake};
use crate::types::Instant;

#[derive(Clone, Debug, Default)]
pub(crate) struct Readers {
    by_owner: BTreeMap<Owner, Packed>,
    by_deadline: BTreeSet<(Instant, Owner)>,
}

/// By owner in byte order.
#[derive(Clone, Debug)]
pub(crate) struct Iter<'a>(btree_map::Iter<'a, Owner, Packed>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a Owner, Packed);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(owner, stake)| (owner, *stake))
    }
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

    pub(crate) fn iter(&self) -> Iter<'_> {
        Iter(self.by_owner.iter())
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
