//! A waiter in its slot, and the orders that it is linked into.

use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};

use super::super::waiter::{Waiter, WaiterId};
use super::position::Position;
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

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) waiter: Waiter,
    /// The slot of its key.
    pub(crate) key: u32,
    pub(crate) upgrade: bool,
    pub(super) flags: Flags,
    /// Those of all below it in the line's tree.
    pub(super) flags_below: Flags,
    /// One that asks for write is among those below it in the task's tree.
    pub(super) write_below: bool,
    /// The one furthest ahead of those below it in the task's tree, whatever their lines.
    pub(super) foremost_below: u32,
    pub(super) line: Links,
    pub(super) task: Links,
    pub(super) limit: Links,
    pub(super) id_link: u32,
    pub(super) task_link: u32,
}

impl Node {
    pub(crate) fn position(&self) -> Position {
        Position::of(self.upgrade, self.waiter.id)
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
}

pub(super) fn hash_of(id: WaiterId) -> u64 {
    // Ids are given one after the other, and nobody chooses his.
    id.0
}

impl Nodes {
    pub(crate) fn hash_task(&self, owner: OwnerRef<'_>) -> u64 {
        self.hasher.hash_one(&*owner.task())
    }

    /// The one of two that stands further ahead; one of them may be none.
    pub(super) fn foremost(&self, one: u32, other: u32) -> u32 {
        if other == NIL || one != NIL && self.slab[one].position() < self.slab[other].position() {
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
        self.slab[one].position().cmp(&self.slab[other].position())
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
        let (one, other) = (&self.slab[one], &self.slab[other]);
        let by_key = one.key.cmp(&other.key);
        let by_owner = by_key.then_with(|| one.waiter.owner.cmp(&other.waiter.owner));
        by_owner.then_with(|| one.position().cmp(&other.position()))
    }

    fn refresh(&mut self, slot: u32) -> bool {
        let Links { left, right, .. } = self.slab[slot].task;
        let mut write = self.slab[slot].waiter.terms.mode() == Mode::Write;
        let mut foremost = slot;
        for child in [left, right] {
            if child != NIL {
                write |= self.slab[child].write_below;
                foremost = self.foremost(foremost, self.slab[child].foremost_below);
            }
        }
        let node = &mut self.slab[slot];
        let before = (node.write_below, node.foremost_below);
        (node.write_below, node.foremost_below) = (write, foremost);
        before != (write, foremost)
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
