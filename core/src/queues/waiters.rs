//! All waiters, indexed by queue, task, limit and id. No rules here.
//!
//! Each waiter lies in a slot and is linked into these orders from there. So a waiter takes the same memory however many there are, and a
//! task that waits only once allocates nothing more.

mod node;
mod position;
mod task;

use std::collections::BTreeMap;

use super::waiter::{Waiter, WaiterId};
use crate::request::Terms;
use crate::table::Table;
use crate::tree::{self, Links, NIL};
use crate::types::{Instant, Lease};

use node::{Flags, Id, Limit, Line, Nodes, hash_of};
use position::Class;

pub(crate) use node::{EXCLUSIVE, Head, LIMITED, MEMBER, Node, SEVERAL_KEYS, WRITES};
pub(crate) use position::Position;
pub use position::{Rank, Reserved};

/// All waiters.
#[derive(Debug)]
pub(crate) struct Waiters {
    pub(crate) nodes: Nodes,
    ids: Table,
    /// The roots of the tasks' trees.
    tasks: Table,
    limits: u32,
    /// For each length of lease, how many ask for it.
    leases: BTreeMap<Lease, u32>,
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            nodes: Nodes::default(),
            ids: Table::default(),
            tasks: Table::default(),
            limits: NIL,
            leases: BTreeMap::new(),
        }
    }
}

impl Waiters {
    pub(crate) fn len(&self) -> usize {
        self.nodes.slab.len()
    }

    pub(crate) fn node(&self, slot: u32) -> &Node {
        &self.nodes.slab[slot]
    }

    pub(crate) fn find(&self, id: WaiterId) -> Option<u32> {
        self.ids.find::<Id>(&self.nodes, hash_of(id), |slot| {
            self.node(slot).waiter.id == id
        })
    }

    /// `waiter` begins to wait in the line of `root`, which is that of `key`. Returns its slot.
    pub(crate) fn insert(&mut self, root: &mut u32, key: u32, waiter: Waiter, rank: Rank) -> u32 {
        let place = self.nodes.take_place(rank, waiter.id);
        let class = self.nodes.set_order(waiter.id, place);
        self.insert_at(root, key, waiter, class, true)
    }

    /// A request that waits already waits in the line of `root`, too.
    pub(crate) fn insert_member(&mut self, root: &mut u32, key: u32, waiter: Waiter) -> u32 {
        self.insert_at(root, key, waiter, Class::Regular, false)
    }

    /// `is_first`: no other slot has this request, so it is found by its id and by its time limit.
    fn insert_at(
        &mut self,
        root: &mut u32,
        key: u32,
        waiter: Waiter,
        class: Class,
        is_first: bool,
    ) -> u32 {
        *self.leases.entry(waiter.terms.lease).or_default() += 1;
        let slot = self.nodes.slab.insert(Node {
            waiter,
            key,
            class,
            flags: 0,
            flags_below: 0,
            write_below: false,
            first_below: NIL,
            line: Links::NONE,
            task: Links::NONE,
            limit: Links::NONE,
            id_link: 0,
            task_link: 0,
        });
        if is_first {
            self.ids.insert::<Id>(&mut self.nodes, slot);
            self.enter_limits(slot);
        }
        tree::insert::<Line>(&mut self.nodes, root, slot);
        self.enter_task(slot);
        slot
    }

    /// The waiter in `slot` is the one by which its request is found.
    fn is_first(&self, slot: u32) -> bool {
        let node = self.node(slot);
        !node.is_member() || self.find(node.waiter.id) == Some(slot)
    }

    /// The waiter in `slot` leaves the queue of `root`.
    pub(crate) fn remove(&mut self, root: &mut u32, slot: u32) -> Option<Waiter> {
        self.leave_task(slot);
        tree::remove::<Line>(&mut self.nodes, root, slot);
        if self.is_first(slot) {
            self.leave_limits(slot);
            self.ids.remove::<Id>(&mut self.nodes, slot);
            self.nodes.forget_order(self.node(slot).waiter.id);
        }
        let Node { waiter, .. } = self.nodes.slab.remove(slot)?;
        self.forget_lease(waiter.terms.lease);
        Some(waiter)
    }

    /// The waiter in `slot` leaves its place in the line of `root`, to come back at another.
    pub(crate) fn step_out(&mut self, root: &mut u32, slot: u32) {
        self.leave_task(slot);
        tree::remove::<Line>(&mut self.nodes, root, slot);
    }

    /// The request `id`, all of whose waiters have stepped out, is to stand at `position`.
    pub(crate) fn set_position(&mut self, id: WaiterId, slots: &[u32], position: Position) {
        let class = self.nodes.set_order(id, position);
        for slot in slots {
            self.nodes.slab[*slot].class = class;
        }
    }

    /// The place of the request `id` if it gets that rank. Nobody else gets it.
    pub(crate) fn take_place(&mut self, id: WaiterId, rank: Rank) -> Position {
        self.nodes.take_place(rank, id)
    }

    /// The waiter in `slot` takes its place in the line of `root`.
    pub(crate) fn step_in(&mut self, root: &mut u32, slot: u32) {
        tree::insert::<Line>(&mut self.nodes, root, slot);
        self.enter_task(slot);
    }

    /// The request in `slot` is made again, on other terms and until another moment, and keeps its place.
    pub(crate) fn take_over(&mut self, slot: u32, terms: Terms, until: Instant) {
        self.leave_limits(slot);
        self.leave_task(slot);
        let waiter = &mut self.nodes.slab[slot].waiter;
        let before = std::mem::replace(&mut waiter.terms, terms);
        waiter.until = until;
        self.enter_task(slot);
        self.enter_limits(slot);
        *self.leases.entry(terms.lease).or_default() += 1;
        self.forget_lease(before.lease);
    }

    /// The longest lease that anybody waits for.
    pub(crate) fn longest_lease(&self) -> Option<Lease> {
        self.leases.last_key_value().map(|(lease, _)| *lease)
    }

    fn forget_lease(&mut self, lease: Lease) {
        if let Some(times) = self.leases.get_mut(&lease) {
            *times -= 1;
            if *times == 0 {
                self.leases.remove(&lease);
            }
        }
    }

    /// The waiter whose time is up first, and when that is.
    pub(crate) fn first_limit(&self) -> Option<(Instant, WaiterId)> {
        let first = tree::first::<Limit>(&self.nodes, self.limits);
        let waiter = (first != NIL).then(|| &self.node(first).waiter)?;
        Some((waiter.until, waiter.id))
    }

    fn enter_limits(&mut self, slot: u32) {
        if self.node(slot).waiter.until < Instant::NEVER && self.is_first(slot) {
            tree::insert::<Limit>(&mut self.nodes, &mut self.limits, slot);
        }
    }

    fn leave_limits(&mut self, slot: u32) {
        if self.node(slot).waiter.until < Instant::NEVER && self.is_first(slot) {
            tree::remove::<Limit>(&mut self.nodes, &mut self.limits, slot);
        }
    }
}

/// In the line of `root`.
impl Waiters {
    /// The first one in or behind `position`, or [`NIL`].
    pub(crate) fn line_from(&self, root: u32, position: Position) -> u32 {
        tree::first_from::<Line>(&self.nodes, root, |slot| self.position(slot) >= position)
    }

    /// Where the waiter in `slot` stands.
    pub(crate) fn position(&self, slot: u32) -> Position {
        self.nodes.position(slot)
    }

    pub(crate) fn next_in_line(&self, slot: u32) -> u32 {
        tree::next::<Line>(&self.nodes, slot)
    }

    /// Whether any has any of `flags`.
    pub(crate) fn any_flagged(&self, root: u32, flags: Flags) -> bool {
        root != NIL && self.node(root).flags_below & flags != 0
    }

    /// The first one with any of `flags`, or [`NIL`].
    pub(crate) fn first_flagged(&self, root: u32, flags: Flags) -> u32 {
        let first = self.line_from(root, Position::FIRST);
        if first == NIL || self.has(first, flags) {
            return first;
        }
        self.next_flagged(first, flags)
    }

    /// The first one with any of `flags` behind `slot`, or [`NIL`].
    pub(crate) fn next_flagged(&self, slot: u32, flags: Flags) -> u32 {
        let below = |slot: u32| self.node(slot).flags_below & flags != 0;
        tree::next_with::<Line>(&self.nodes, slot, |slot| self.has(slot, flags), below)
    }

    /// The last one with any of `flags` ahead of `position`, or [`NIL`].
    pub(crate) fn last_flagged_before(&self, root: u32, position: Position, flags: Flags) -> u32 {
        let last =
            tree::last_before::<Line>(&self.nodes, root, |slot| self.position(slot) < position);
        if last == NIL || self.has(last, flags) {
            return last;
        }
        self.previous_flagged(last, flags)
    }

    /// The last one with any of `flags` ahead of `slot`, or [`NIL`].
    pub(crate) fn previous_flagged(&self, slot: u32, flags: Flags) -> u32 {
        let below = |slot: u32| self.node(slot).flags_below & flags != 0;
        tree::previous_with::<Line>(&self.nodes, slot, |slot| self.has(slot, flags), below)
    }

    pub(crate) fn has(&self, slot: u32, flags: Flags) -> bool {
        self.node(slot).flags & flags != 0
    }
}
