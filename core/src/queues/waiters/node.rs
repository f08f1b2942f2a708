//! A waiter in its slot, and the orders that it is linked into.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use super::super::waiter::{Waiter, WaiterId};
use super::position::{Class, Position, Rank, Reserved};
use crate::owner::OwnerRef;
use crate::slab::Slab;
use crate::table::Chained;
use crate::tree::{Forest, Links, NIL};
use crate::types::Mode;

/// What a search can find in a line without visiting every waiter, as bits.
pub(super) type Flags = u8;
/// The first request of an owner in the line, of which one at least is for write. (All of an owner's
/// requests count as standing where the first one does: when that is granted they are decided.)
pub(crate) const WRITES: Flags = 1;
/// The first request in the line of a task that waits in other lines, too.
pub(crate) const SEVERAL_KEYS: Flags = 2;
/// The first request of an owner in the line, which has a limit. (Later ones never wait for theirs: the owner holds by then.)
pub(crate) const LIMITED: Flags = 4;
/// A request that takes several keys at once, of which this is one. (Its owner has no other request here.)
pub(crate) const MEMBER: Flags = 8;
/// A request to write.
pub(crate) const EXCLUSIVE: Flags = WRITES | MEMBER;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) waiter: Waiter,
    /// The slot of its key.
    pub(crate) key: u32,
    pub(super) class: Class,
    pub(super) flags: Flags,
    /// Those of all below it in the line's tree.
    pub(super) flags_below: Flags,
    /// One that asks for write is among those below it in the task's tree.
    pub(super) write_below: bool,
    /// The one furthest ahead of those below it in the task's tree, whatever their lines.
    pub(super) first_below: u32,
    pub(super) line: Links,
    pub(super) task: Links,
    pub(super) limit: Links,
    pub(super) id_link: u32,
    pub(super) task_link: u32,
}

impl Node {
    pub(crate) fn is_upgrade(&self) -> bool {
        self.class == Class::Upgrade
    }

    /// It is part of a request that takes several keys at once.
    pub(crate) fn is_member(&self) -> bool {
        self.waiter.terms.sharing.keys().is_some()
    }
}

/// The line of one key: by place.
pub(crate) enum Line {}
/// The waiters of one task: by key, owner and place.
pub(crate) enum Task {}
/// All waiters that do not wait for ever: by the end of their waits.
pub(super) enum Limit {}
/// All waiters by id.
pub(super) enum Id {}

#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub(super) slab: Slab<Node>,
    hasher: RandomState,
    /// The order of the requests that were moved to the head of their queues: the same in all queues of a request.
    moved: BTreeMap<WaiterId, u64>,
    head: Head,
}

/// Up to where the places at the heads of the queues have been given out, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    first: u64,
    last: u64,
}

impl Default for Head {
    fn default() -> Self {
        let middle = u64::MAX / 2;
        Self {
            first: middle,
            last: middle,
        }
    }
}

pub(super) fn hash_of(id: WaiterId) -> u64 {
    // The server gives ids one after the other, so no client can choose its own.
    id.0
}

impl Nodes {
    /// Where the waiter in `slot` stands in its line.
    pub(crate) fn position(&self, slot: u32) -> Position {
        let Node { class, waiter, .. } = &self.slab[slot];
        let order = match class {
            Class::Moved => self.moved.get(&waiter.id).copied(),
            Class::Upgrade | Class::Regular => None,
        };
        Position::of(*class, order.unwrap_or(waiter.id.0))
    }

    /// Where a request of that rank would stand if it came now.
    pub(crate) fn end(&self, rank: Rank) -> Position {
        match rank {
            Rank::Upgrade => Position::of(Class::Upgrade, u64::MAX),
            Rank::Front => Position::of(Class::Moved, self.head.first - 1),
            Rank::Head => Position::of(Class::Moved, self.head.last + 1),
            Rank::Reserved(Reserved(order)) => Position::of(Class::Moved, order),
            Rank::Last => Position::END,
        }
    }

    /// A place ahead of all others at the heads, for a request that will stand there.
    pub(crate) fn reserve(&mut self) -> Reserved {
        self.head.first -= 1;
        Reserved(self.head.first)
    }

    /// The last place at the heads, for a request that will stand there.
    pub(crate) fn reserve_last(&mut self) -> Reserved {
        self.head.last += 1;
        Reserved(self.head.last)
    }

    pub(crate) fn head(&self) -> Head {
        self.head
    }

    pub(crate) fn set_head(&mut self, head: Head) {
        self.head = head;
    }

    /// The place of a waiter of that rank, which nobody else gets.
    pub(super) fn take_place(&mut self, rank: Rank, id: WaiterId) -> Position {
        match rank {
            Rank::Upgrade => Position::of_upgrade(id),
            Rank::Last => Position::of(Class::Regular, id.0),
            Rank::Front => Position::of(Class::Moved, self.reserve().0),
            Rank::Reserved(Reserved(order)) => Position::of(Class::Moved, order),
            Rank::Head => {
                self.head.last += 1;
                Position::of(Class::Moved, self.head.last)
            }
        }
    }

    /// Notes where the request `id` is to stand. Returns the class of its waiters.
    pub(super) fn set_order(&mut self, id: WaiterId, position: Position) -> Class {
        match position.class {
            Class::Moved => drop(self.moved.insert(id, position.order)),
            Class::Upgrade | Class::Regular => self.forget_order(id),
        }
        position.class
    }

    /// The waiter has left all its lines, or its place at the head of them.
    pub(super) fn forget_order(&mut self, id: WaiterId) {
        if !self.moved.is_empty() {
            self.moved.remove(&id);
        }
    }

    pub(crate) fn hash_task(&self, owner: OwnerRef<'_>) -> u64 {
        self.hasher.hash_one(owner.task_owner())
    }

    /// The one of two that stands further ahead; one of them may be none. All members of a request for several keys stand in
    /// the same position, so their slots decide: which one it is may not depend on the shape of a tree.
    pub(super) fn ahead(&self, one: u32, other: u32) -> u32 {
        let place = |slot: u32| (self.position(slot), slot);
        if other == NIL || one != NIL && place(one) < place(other) {
            one
        } else {
            other
        }
    }
}

impl Forest<Line> for Nodes {
    fn links(&self, slot: u32) -> &Links {
        &self.slab[slot].line
    }

    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.slab[slot].line
    }

    fn order(&self, one: u32, other: u32) -> Ordering {
        self.position(one).cmp(&self.position(other))
    }

    fn refresh(&mut self, slot: u32) -> bool {
        let Links { left, right, .. } = self.slab[slot].line;
        let mut flags = self.slab[slot].flags;
        for child in [left, right] {
            if child != NIL {
                flags |= self.slab[child].flags_below;
            }
        }
        std::mem::replace(&mut self.slab[slot].flags_below, flags) != flags
    }
}

impl Forest<Task> for Nodes {
    fn links(&self, slot: u32) -> &Links {
        &self.slab[slot].task
    }

    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.slab[slot].task
    }

    fn order(&self, one: u32, other: u32) -> Ordering {
        let (node, with) = (&self.slab[one], &self.slab[other]);
        let by_key = node.key.cmp(&with.key);
        let by_owner = by_key.then_with(|| node.waiter.owner.cmp(&with.waiter.owner));
        by_owner.then_with(|| self.position(one).cmp(&self.position(other)))
    }

    fn refresh(&mut self, slot: u32) -> bool {
        let Links { left, right, .. } = self.slab[slot].task;
        let mut write = self.slab[slot].waiter.terms.mode() == Mode::Write;
        let mut first = slot;
        for child in [left, right] {
            if child != NIL {
                write |= self.slab[child].write_below;
                first = self.ahead(first, self.slab[child].first_below);
            }
        }
        let node = &mut self.slab[slot];
        let before = (node.write_below, node.first_below);
        (node.write_below, node.first_below) = (write, first);
        before != (write, first)
    }
}

impl Chained<Task> for Nodes {
    fn link(&self, slot: u32) -> u32 {
        self.slab[slot].task_link
    }

    fn set_link(&mut self, slot: u32, link: u32) {
        self.slab[slot].task_link = link;
    }

    fn hash(&self, slot: u32) -> u64 {
        self.hash_task(self.slab[slot].waiter.owner.as_ref())
    }
}

impl Forest<Limit> for Nodes {
    fn links(&self, slot: u32) -> &Links {
        &self.slab[slot].limit
    }

    fn links_mut(&mut self, slot: u32) -> &mut Links {
        &mut self.slab[slot].limit
    }

    fn order(&self, one: u32, other: u32) -> Ordering {
        let (one, other) = (&self.slab[one].waiter, &self.slab[other].waiter);
        (one.until, one.id).cmp(&(other.until, other.id))
    }
}

impl Chained<Id> for Nodes {
    fn link(&self, slot: u32) -> u32 {
        self.slab[slot].id_link
    }

    fn set_link(&mut self, slot: u32, link: u32) {
        self.slab[slot].id_link = link;
    }

    fn hash(&self, slot: u32) -> u64 {
        hash_of(self.slab[slot].waiter.id)
    }
}
