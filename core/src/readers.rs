//! The holds of several owners on one lock, who can only be readers. No rules here: see `live.rs`.
//!
//! A map finds a hold by its owner. A tree has them in the order of their deadlines, and each node knows how many holds are
//! below it and what their read counts add up to. So each operation on one of them is O(log n), and so is each question about all whose
//! lease is not over. The order in which they came does not matter.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use crate::owner::{Owner, OwnerRef};
use crate::slab::Slab;
use crate::stake::{Packed, Stake};
use crate::tree::{self, Forest, Links, NIL};
use crate::types::Instant;

#[derive(Clone, Debug)]
pub(crate) struct Readers {
    /// The slot of each hold.
    by_owner: BTreeMap<Owner, u32>,
    holds: Slab<Node>,
    /// The root of the tree by deadline, and the first in it.
    root: u32,
    first: u32,
}

/// How many owners whose names begin like the task's are checked to find out whether one of the task reads.
const MOST_OF_A_TASK: usize = 256;

/// A hold in its slot.
#[derive(Clone, Debug)]
struct Node {
    owner: Owner,
    stake: Packed,
    links: Links,
    /// How many holds there are in the tree below it, itself included.
    len: u32,
    /// What their read counts add up to.
    reads: u64,
}

/// Several holds together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// How many there are.
    pub(crate) len: usize,
    /// What their read counts add up to.
    pub(crate) reads: u64,
}

impl Default for Readers {
    fn default() -> Self {
        Self {
            by_owner: BTreeMap::new(),
            holds: Slab::new(),
            root: NIL,
            first: NIL,
        }
    }
}

/// The order of deadlines.
enum Deadline {}

impl Forest<Deadline> for Slab<Node> {
    fn links(&self, slot: u32) -> &Links {
        &self[slot].links
    }

    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self[slot].links
    }

    fn order(&self, one: u32, other: u32) -> Ordering {
        let (one, other) = (&self[one], &self[other]);
        let by_deadline = one.stake.deadline().cmp(&other.stake.deadline());
        by_deadline.then_with(|| one.owner.cmp(&other.owner))
    }

    fn refresh(&mut self, slot: u32) -> bool {
        let node = &self[slot];
        let (mut len, mut reads) = (1, u64::from(node.stake.reads()));
        for child in [node.links.left, node.links.right] {
            if child != NIL {
                let child = &self[child];
                len += child.len;
                reads += child.reads;
            }
        }
        let node = &mut self[slot];
        let changed = (node.len, node.reads) != (len, reads);
        (node.len, node.reads) = (len, reads);
        changed
    }

    fn is_sum(&self) -> bool {
        true
    }

    fn add(&mut self, above: u32, slot: u32) {
        let reads = u64::from(self[slot].stake.reads());
        let above = &mut self[above];
        above.len += 1;
        above.reads += reads;
    }

    fn subtract(&mut self, above: u32, slot: u32) {
        let reads = u64::from(self[slot].stake.reads());
        let above = &mut self[above];
        above.len -= 1;
        above.reads -= reads;
    }
}

impl Readers {
    pub(crate) fn len(&self) -> usize {
        self.by_owner.len()
    }

    pub(crate) fn get(&self, owner: OwnerRef<'_>) -> Option<Stake> {
        let slot = self.by_owner.get(&owner.to_owner())?;
        Some(self.holds[*slot].stake.unpack())
    }

    pub(crate) fn insert(&mut self, owner: Owner, stake: Stake) {
        let slot = self.holds.insert(Node {
            owner: owner.clone(),
            stake: Packed::of(&stake),
            links: Links::NONE,
            len: 0,
            reads: 0,
        });
        self.by_owner.insert(owner, slot);
        self.link(slot);
    }

    fn link(&mut self, slot: u32) {
        tree::insert(&mut self.holds, &mut self.root, slot);
        if self.first == NIL || self.holds.order(slot, self.first) == Ordering::Less {
            self.first = slot;
        }
    }

    fn unlink(&mut self, slot: u32) {
        if slot == self.first {
            self.first = tree::next(&self.holds, slot);
        }
        tree::remove(&mut self.holds, &mut self.root, slot);
    }

    /// Changes the hold of `owner`, which goes if nothing of it is left. Looks it up once. `None` if there is none, or if `act` returns that.
    pub(crate) fn alter<T>(
        &mut self,
        owner: OwnerRef<'_>,
        act: impl FnOnce(&mut Stake) -> Option<T>,
    ) -> Option<T> {
        let Entry::Occupied(entry) = self.by_owner.entry(owner.to_owner()) else {
            return None;
        };
        let slot = *entry.get();
        let before = self.holds[slot].stake;
        let mut stake = before.unpack();
        let outcome = act(&mut stake);
        if stake.total() == 0 {
            entry.remove();
            self.take(slot);
            return outcome;
        }
        let stake = Packed::of(&stake);
        if stake.deadline() == before.deadline() {
            self.holds[slot].stake = stake;
            tree::changed(&mut self.holds, slot);
        } else {
            self.unlink(slot);
            self.holds[slot].stake = stake;
            self.link(slot);
        }
        outcome
    }

    pub(crate) fn remove(&mut self, owner: OwnerRef<'_>) -> Option<Stake> {
        let slot = self.by_owner.remove(&owner.to_owner())?;
        self.take(slot).map(|(_, stake)| stake)
    }

    /// Removes the hold in `slot`, which is no longer in the map.
    fn take(&mut self, slot: u32) -> Option<(Owner, Stake)> {
        self.unlink(slot);
        let node = self.holds.remove(slot)?;
        Some((node.owner, node.stake.unpack()))
    }

    fn deadline(&self, slot: u32) -> Option<Instant> {
        (slot != NIL).then(|| self.holds[slot].stake.deadline())
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadline(self.first)
    }

    /// When the first lease ends that is not over at `now`.
    pub(crate) fn next_live_deadline(&self, now: Instant) -> Option<Instant> {
        self.deadline(self.first_live(now))
    }

    /// The slot of the hold whose lease ends first of those that are not over at `now`, or [`NIL`].
    fn first_live(&self, now: Instant) -> u32 {
        let is_live = |slot: u32| !self.holds[slot].stake.is_over(now);
        if self.first == NIL || is_live(self.first) {
            return self.first;
        }
        tree::first_from(&self.holds, self.root, is_live)
    }

    /// All whose lease is not over at `now`.
    pub(crate) fn live(&self, now: Instant) -> Sum {
        let (mut at, mut sum) = (self.root, Sum::default());
        while at != NIL {
            let node = &self.holds[at];
            if node.stake.is_over(now) {
                at = node.links.right;
                continue;
            }
            sum.len += 1;
            sum.reads += u64::from(node.stake.reads());
            if node.links.right != NIL {
                let behind = &self.holds[node.links.right];
                sum.len += behind.len as usize;
                sum.reads += behind.reads;
            }
            at = node.links.left;
        }
        sum
    }

    /// The only hold whose lease is not over at `now`.
    pub(crate) fn last_if_alone(&self, now: Instant) -> Option<(Owner, Packed)> {
        let first = self.first_live(now);
        let is_alone = first != NIL && tree::next(&self.holds, first) == NIL;
        is_alone.then(|| (self.holds[first].owner.clone(), self.holds[first].stake))
    }

    /// Removes the hold whose lease ends first.
    pub(crate) fn pop_next(&mut self) -> Option<(Owner, Stake)> {
        self.pop(self.first)
    }

    /// Removes the hold whose lease ends last, if it is not over at `now`.
    pub(crate) fn pop_last_live(&mut self, now: Instant) -> Option<(Owner, Stake)> {
        let last = tree::last(&self.holds, self.root);
        let is_live = self.deadline(last)? > now;
        is_live.then(|| self.pop(last)).flatten()
    }

    fn pop(&mut self, slot: u32) -> Option<(Owner, Stake)> {
        let node = self.holds.get(slot)?;
        self.by_owner.remove(&node.owner);
        self.take(slot)
    }

    /// Removes any one of them without updating the tree: for holds that no longer count.
    pub(crate) fn pop_apart(&mut self) -> Option<(Owner, Stake)> {
        let (_, slot) = self.by_owner.pop_first()?;
        let node = self.holds.remove(slot)?;
        Some((node.owner, node.stake.unpack()))
    }

    fn entry(&self, (owner, slot): (&Owner, &u32)) -> (Owner, Packed) {
        (owner.clone(), self.holds[*slot].stake)
    }

    /// Up to `len` of those whose lease is not over at `now`, by owner in byte order.
    pub(crate) fn live_holds(&self, now: Instant, len: usize) -> Vec<(Owner, Packed)> {
        let live = self.live(now).len;
        // A walk in byte order passes about `len * self.len() / live` holds; the other way sorts the `live` ones. Take the shorter.
        if live * live >= len.min(live) * self.len() {
            let found = self.by_owner.iter().map(|entry| self.entry(entry));
            let found = found.filter(|(_, stake)| !stake.is_over(now));
            return found.take(len).collect();
        }
        let mut found = Vec::new();
        let mut at = self.first_live(now);
        while at != NIL {
            found.push(&self.holds[at]);
            at = tree::next(&self.holds, at);
        }
        found.sort_unstable_by(|one, other| one.owner.cmp(&other.owner));
        let found = found.into_iter().take(len);
        found.map(|node| (node.owner.clone(), node.stake)).collect()
    }

    /// By owner in byte order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Owner, Packed)> {
        let stake = |(owner, slot): (_, &u32)| (owner, self.holds[*slot].stake);
        self.by_owner.iter().map(stake)
    }

    /// The first one by owner in byte order.
    pub(crate) fn first(&self) -> Option<Stake> {
        let (_, slot) = self.by_owner.first_key_value()?;
        Some(self.holds[*slot].stake.unpack())
    }

    /// Up to `len` of those after `last`, or from the first one on.
    pub(crate) fn page(&self, last: Option<&Owner>, len: usize) -> Vec<(Owner, Packed)> {
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.by_owner.range((from, Bound::Unbounded)).take(len);
        behind.map(|entry| self.entry(entry)).collect()
    }

    /// Those whose owner begins with `prefix`.
    pub(crate) fn beginning_with(&self, prefix: &[u8]) -> impl Iterator<Item = (&Owner, Packed)> {
        let from = OwnerRef::new(prefix).map(OwnerRef::to_owner);
        let behind = from.map(|from| self.by_owner.range(from..));
        behind
            .into_iter()
            .flatten()
            .take_while(move |(owner, _)| owner.text().starts_with(prefix))
            .map(|(owner, slot)| (owner, self.holds[*slot].stake))
    }

    /// An owner of `owner`'s task other than `except` reads by a hold that `counts`.
    pub(crate) fn reads_for_task(
        &self,
        owner: OwnerRef<'_>,
        except: Option<OwnerRef<'_>>,
        counts: impl Fn(Packed) -> bool,
    ) -> bool {
        let task = owner.task();
        let of_task = |(reader, stake): (&Owner, Packed)| {
            let reader = reader.as_ref();
            counts(stake) && except != Some(reader) && *reader.task() == *task
        };
        if task.ends_with(b"##") {
            let first = self.beginning_with(&task).take(MOST_OF_A_TASK);
            return first.into_iter().any(of_task);
        }
        let found = self.by_owner.get_key_value(&owner.to_owner());
        found.is_some_and(|(reader, slot)| of_task((reader, self.holds[*slot].stake)))
    }

    /// Bytes allocated, this value itself included.
    pub(crate) fn size(&self) -> usize {
        // A node of a B-tree has 11 entries, and is about two thirds full.
        let entry = size_of::<Owner>() + size_of::<u32>();
        let owners: usize = match self.by_owner.first_key_value() {
            Some((owner, _)) => 2 * owner.heap_size() * self.len(),
            None => 0,
        };
        let room = 11 + self.len() * 3 / 2;
        size_of::<Self>() + room * entry + self.holds.heap_size() + owners
    }
}
