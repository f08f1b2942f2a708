//! All who wait, whatever they wait for, in the orders in which they are looked for: in the line of
//! their key, by task, by the limit of their wait, and by id. No rules here.
//!
//! Each waiter lies in a slot and is linked into those orders from there, so that one costs the
//! same however many there are, and nothing is allocated for the many who wait once.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

use super::slab::Slab;
use super::table::{Chained, Table};
use super::tree::{self, Forest, Links, NIL};
use super::waiter::{Changed, Waiter, WaiterId};
use crate::owner::OwnerRef;
use crate::types::{Instant, Lease, Mode};

/// Where a waiter stands in its line: lower is further ahead. Upgrades stand ahead of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    behind_upgrades: bool,
    id: WaiterId,
}

impl Place {
    /// Ahead of all.
    pub(crate) const FIRST: Self = Self {
        behind_upgrades: false,
        id: WaiterId(0),
    };

    /// Behind all upgrades and ahead of all others.
    pub(crate) const LINE: Self = Self {
        behind_upgrades: true,
        id: WaiterId(0),
    };

    /// Behind all upgrades, or behind all.
    pub(crate) const fn end(upgrade: bool) -> Self {
        Self {
            behind_upgrades: !upgrade,
            id: WaiterId(u64::MAX),
        }
    }

    /// Of the upgrade `id`.
    pub(crate) const fn upgrade(id: WaiterId) -> Self {
        Self {
            behind_upgrades: false,
            id,
        }
    }

    pub(crate) fn is_upgrade(self) -> bool {
        !self.behind_upgrades
    }

    /// Right behind this one.
    pub(crate) fn behind(self) -> Self {
        match self.id.0.checked_add(1) {
            Some(id) => Self {
                id: WaiterId(id),
                ..self
            },
            None => Self::LINE,
        }
    }
}

/// What is to be found in a line without a look at everybody, as bits.
type Marks = u8;
/// The first request of an owner in the line, of which one at least is for write. (All of an owner's
/// requests count as standing where the first one does: when that is granted they are decided.)
pub(crate) const WRITES: Marks = 1;
/// The first request in the line of a task that waits in other lines, too.
pub(crate) const ROAMS: Marks = 2;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) waiter: Waiter,
    /// The slot of its key.
    pub(crate) key: u32,
    pub(crate) upgrade: bool,
    marks: Marks,
    /// Those of all below it in the line's tree.
    marks_below: Marks,
    /// One that asks for write is among those below it in the task's tree.
    write_below: bool,
    /// The one furthest ahead of those below it in the task's tree, whatever their lines.
    foremost_below: u32,
    line: Links,
    task: Links,
    limit: Links,
    id_link: u32,
    task_link: u32,
}

impl Node {
    pub(crate) fn place(&self) -> Place {
        Place {
            behind_upgrades: !self.upgrade,
            id: self.waiter.id,
        }
    }
}

/// The line of one key: by place.
pub(crate) enum Line {}
/// The waiters of one task: by key, owner and place.
pub(crate) enum Task {}
/// All waiters that do not wait for ever: by the end of their waits.
enum Limit {}
/// All waiters by id.
enum Id {}

#[derive(Debug, Default)]
pub(crate) struct Nodes {
    slab: Slab<Node>,
    hasher: RandomState,
}

/// All who wait.
#[derive(Debug)]
pub(crate) struct Waiters {
    pub(crate) nodes: Nodes,
    ids: Table,
    /// The roots of the tasks' trees.
    tasks: Table,
    limits: u32,
    /// How many ask for a lease of which length.
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

    /// `waiter` begins to wait in the line of `root`, which is that of `key`.
    pub(crate) fn insert(&mut self, root: &mut u32, key: u32, waiter: Waiter, upgrade: bool) {
        *self.leases.entry(waiter.lease).or_default() += 1;
        let slot = self.nodes.slab.insert(Node {
            waiter,
            key,
            upgrade,
            marks: 0,
            marks_below: 0,
            write_below: false,
            foremost_below: NIL,
            line: Links::NONE,
            task: Links::NONE,
            limit: Links::NONE,
            id_link: 0,
            task_link: 0,
        });
        self.ids.insert::<Id>(&mut self.nodes, slot);
        self.enter_limits(slot);
        tree::insert::<Line>(&mut self.nodes, root, slot);
        self.enter_task(slot);
    }

    /// The waiter in `slot` waits no more in the line of `root`.
    pub(crate) fn remove(&mut self, root: &mut u32, slot: u32) -> Option<Waiter> {
        self.leave_task(slot);
        tree::remove::<Line>(&mut self.nodes, root, slot);
        self.leave_limits(slot);
        self.ids.remove::<Id>(&mut self.nodes, slot);
        let Node { waiter, .. } = self.nodes.slab.remove(slot)?;
        self.forget_lease(waiter.lease);
        Some(waiter)
    }

    /// The waiter in `slot` stands ahead of the others in the line of `root` from now on.
    pub(crate) fn move_ahead(&mut self, root: &mut u32, slot: u32) {
        self.leave_task(slot);
        tree::remove::<Line>(&mut self.nodes, root, slot);
        self.nodes.slab[slot].upgrade = true;
        tree::insert::<Line>(&mut self.nodes, root, slot);
        self.enter_task(slot);
    }

    /// The request in `slot` is made again, and keeps its place.
    pub(crate) fn take_over(&mut self, slot: u32, changed: Changed) {
        self.leave_limits(slot);
        let waiter = &mut self.nodes.slab[slot].waiter;
        let lease = std::mem::replace(&mut waiter.lease, changed.lease);
        waiter.holds = changed.holds;
        waiter.fence = changed.fence;
        waiter.token = changed.token;
        waiter.limit = changed.limit;
        self.enter_limits(slot);
        *self.leases.entry(changed.lease).or_default() += 1;
        self.forget_lease(lease);
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

    /// Whose time is up first, and when.
    pub(crate) fn first_limit(&self) -> Option<(Instant, WaiterId)> {
        let first = tree::first::<Limit>(&self.nodes, self.limits);
        let waiter = (first != NIL).then(|| &self.node(first).waiter)?;
        Some((waiter.limit?, waiter.id))
    }

    fn enter_limits(&mut self, slot: u32) {
        if self.node(slot).waiter.limit.is_some() {
            tree::insert::<Limit>(&mut self.nodes, &mut self.limits, slot);
        }
    }

    fn leave_limits(&mut self, slot: u32) {
        if self.node(slot).waiter.limit.is_some() {
            tree::remove::<Limit>(&mut self.nodes, &mut self.limits, slot);
        }
    }
}

/// By task.
impl Waiters {
    /// The root of the tree of `owner`'s task, or [`NIL`] if nobody of it waits.
    pub(crate) fn task_of(&self, owner: OwnerRef<'_>) -> u32 {
        if self.len() == 0 {
            return NIL;
        }
        let task = owner.task();
        let hash = self.nodes.hash_task(owner);
        let found = self.tasks.find::<Task>(&self.nodes, hash, |root| {
            *self.node(root).waiter.owner.as_ref().task() == *task
        });
        found.unwrap_or(NIL)
    }

    /// The root of the tree of the task to which the waiter in `slot` belongs.
    pub(crate) fn task_at(&self, slot: u32) -> u32 {
        let mut root = slot;
        while self.node(root).task.parent != NIL {
            root = self.node(root).task.parent;
        }
        root
    }

    /// The first request of `owner` at `key` in the order of the line, or [`NIL`].
    pub(crate) fn standing(&self, task: u32, key: u32, owner: OwnerRef<'_>) -> u32 {
        self.request_from(task, key, owner, Place::FIRST)
    }

    /// The first request of `owner` at `key` in or behind `place`, or [`NIL`].
    pub(crate) fn request_from(
        &self,
        task: u32,
        key: u32,
        owner: OwnerRef<'_>,
        place: Place,
    ) -> u32 {
        let found = tree::first_from::<Task>(&self.nodes, task, |slot| {
            let node = self.node(slot);
            let by_key = node.key.cmp(&key);
            let by_owner = by_key.then_with(|| node.waiter.owner.as_ref().cmp(&owner));
            by_owner.then_with(|| node.place().cmp(&place)) != Ordering::Less
        });
        if found != NIL && self.is_request_of(found, key, owner) {
            found
        } else {
            NIL
        }
    }

    fn is_request_of(&self, slot: u32, key: u32, owner: OwnerRef<'_>) -> bool {
        let node = self.node(slot);
        node.key == key && node.waiter.owner.as_ref() == owner
    }

    /// The first request of the next owner of the task at the same key, or [`NIL`].
    pub(crate) fn next_standing(&self, task: u32, slot: u32) -> u32 {
        let (key, owner) = (self.node(slot).key, self.node(slot).waiter.owner.as_ref());
        let found = tree::first_from::<Task>(&self.nodes, task, |slot| {
            let node = self.node(slot);
            let by_key = node.key.cmp(&key);
            by_key.then_with(|| node.waiter.owner.as_ref().cmp(&owner)) == Ordering::Greater
        });
        if found != NIL && self.node(found).key == key {
            found
        } else {
            NIL
        }
    }

    /// A request of the task at the first of its keys whose slot is `from` or higher, or [`NIL`]: the
    /// first one of an owner.
    pub(crate) fn key_from(&self, task: u32, from: u32) -> u32 {
        tree::first_from::<Task>(&self.nodes, task, |slot| self.node(slot).key >= from)
    }

    /// The request of the task that stands furthest ahead at `key`, or [`NIL`].
    pub(crate) fn foremost(&self, task: u32, key: u32) -> u32 {
        let links = |slot: u32| self.node(slot).task;
        let mut at = task;
        while at != NIL && self.node(at).key != key {
            let is_behind = self.node(at).key < key;
            at = if is_behind {
                links(at).right
            } else {
                links(at).left
            };
        }
        if at == NIL {
            return NIL;
        }
        let below = |slot: u32| match slot {
            NIL => NIL,
            slot => self.node(slot).foremost_below,
        };
        let mut found = at;
        let mut left = links(at).left;
        while left != NIL {
            if self.node(left).key == key {
                found = self.nodes.foremost(found, left);
                found = self.nodes.foremost(found, below(links(left).right));
                left = links(left).left;
            } else {
                left = links(left).right;
            }
        }
        let mut right = links(at).right;
        while right != NIL {
            if self.node(right).key == key {
                found = self.nodes.foremost(found, right);
                found = self.nodes.foremost(found, below(links(right).left));
                right = links(right).right;
            } else {
                right = links(right).left;
            }
        }
        found
    }

    /// The task waits at several keys.
    pub(crate) fn roams(&self, task: u32) -> bool {
        if task == NIL {
            return false;
        }
        let first = tree::first::<Task>(&self.nodes, task);
        let last = tree::last::<Task>(&self.nodes, task);
        self.node(first).key != self.node(last).key
    }

    fn enter_task(&mut self, slot: u32) {
        let (key, owner) = (self.node(slot).key, self.node(slot).waiter.owner.clone());
        let task = self.task_of(owner.as_ref());
        let roamed = self.roams(task);
        self.unmark(task, key, owner.as_ref());
        let mut root = task;
        tree::insert::<Task>(&mut self.nodes, &mut root, slot);
        if task == NIL {
            self.tasks.insert::<Task>(&mut self.nodes, root);
        } else if root != task {
            self.tasks.replace::<Task>(&mut self.nodes, task, root);
        }
        self.mark(root, key, owner.as_ref(), roamed);
    }

    fn leave_task(&mut self, slot: u32) {
        let (key, owner) = (self.node(slot).key, self.node(slot).waiter.owner.clone());
        let task = self.task_at(slot);
        let roamed = self.roams(task);
        self.unmark(task, key, owner.as_ref());
        let mut root = task;
        tree::remove::<Task>(&mut self.nodes, &mut root, slot);
        if root == NIL {
            self.tasks.remove::<Task>(&mut self.nodes, task);
        } else {
            if root != task {
                self.tasks.replace::<Task>(&mut self.nodes, task, root);
            }
            self.mark(root, key, owner.as_ref(), roamed);
        }
    }

    /// What `owner` waits for at `key` is about to change.
    fn unmark(&mut self, task: u32, key: u32, owner: OwnerRef<'_>) {
        let first = self.standing(task, key, owner);
        if first != NIL {
            self.set_marks(first, 0);
        }
        self.mark_foremost(task, key, false);
    }

    /// What `owner` waits for at `key` has changed.
    fn mark(&mut self, task: u32, key: u32, owner: OwnerRef<'_>, roamed: bool) {
        let first = self.standing(task, key, owner);
        if first != NIL && self.asks_for_write(first, key, owner) {
            self.set_marks(first, WRITES);
        }
        let roams = self.roams(task);
        if roams == roamed {
            self.mark_foremost(task, key, roams);
            return;
        }
        // It waits at two keys now and waited at one before, or the other way round.
        let mut at = self.key_from(task, 0);
        while at != NIL {
            let key = self.node(at).key;
            self.mark_foremost(task, key, roams);
            at = self.key_from(task, key + 1);
        }
    }

    fn mark_foremost(&mut self, task: u32, key: u32, roams: bool) {
        let slot = self.foremost(task, key);
        if slot != NIL {
            let marks = self.node(slot).marks & !ROAMS;
            self.set_marks(slot, if roams { marks | ROAMS } else { marks });
        }
    }

    fn asks_for_write(&self, first: u32, key: u32, owner: OwnerRef<'_>) -> bool {
        let write = |slot: u32| self.node(slot).waiter.mode == Mode::Write;
        let write_below = |slot: u32| self.node(slot).write_below;
        if write(first) {
            return true;
        }
        let next = tree::next_with::<Task>(&self.nodes, first, write, write_below);
        next != NIL && self.is_request_of(next, key, owner)
    }

    fn set_marks(&mut self, slot: u32, marks: Marks) {
        let node = &mut self.nodes.slab[slot];
        if node.marks != marks {
            node.marks = marks;
            tree::changed::<Line>(&mut self.nodes, slot);
        }
    }
}

/// In the line of `root`.
impl Waiters {
    /// The first one in or behind `place`, or [`NIL`].
    pub(crate) fn line_from(&self, root: u32, place: Place) -> u32 {
        tree::first_from::<Line>(&self.nodes, root, |slot| self.node(slot).place() >= place)
    }

    pub(crate) fn next_in_line(&self, slot: u32) -> u32 {
        tree::next::<Line>(&self.nodes, slot)
    }

    /// The last one with any of `marks` ahead of `place`, or [`NIL`].
    pub(crate) fn last_marked_before(&self, root: u32, place: Place, marks: Marks) -> u32 {
        let last =
            tree::last_before::<Line>(&self.nodes, root, |slot| self.node(slot).place() < place);
        if last == NIL || self.has(last, marks) {
            return last;
        }
        self.previous_marked(last, marks)
    }

    /// The last one with any of `marks` ahead of `slot`, or [`NIL`].
    pub(crate) fn previous_marked(&self, slot: u32, marks: Marks) -> u32 {
        let below = |slot: u32| self.node(slot).marks_below & marks != 0;
        tree::previous_with::<Line>(&self.nodes, slot, |slot| self.has(slot, marks), below)
    }

    pub(crate) fn has(&self, slot: u32, marks: Marks) -> bool {
        self.node(slot).marks & marks != 0
    }
}

fn hash_of(id: WaiterId) -> u64 {
    // Ids are given one after the other, and nobody chooses his.
    id.0
}

impl Nodes {
    pub(crate) fn hash_task(&self, owner: OwnerRef<'_>) -> u64 {
        self.hasher.hash_one(&*owner.task())
    }

    /// The one of two that stands further ahead; one of them may be none.
    fn foremost(&self, one: u32, other: u32) -> u32 {
        if other == NIL || one != NIL && self.slab[one].place() < self.slab[other].place() {
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
        self.slab[one].place().cmp(&self.slab[other].place())
    }

    fn refresh(&mut self, slot: u32) -> bool {
        let Links { left, right, .. } = self.slab[slot].line;
        let mut marks = self.slab[slot].marks;
        for child in [left, right] {
            if child != NIL {
                marks |= self.slab[child].marks_below;
            }
        }
        std::mem::replace(&mut self.slab[slot].marks_below, marks) != marks
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
        by_owner.then_with(|| one.place().cmp(&other.place()))
    }

    fn refresh(&mut self, slot: u32) -> bool {
        let Links { left, right, .. } = self.slab[slot].task;
        let mut write = self.slab[slot].waiter.mode == Mode::Write;
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
        (one.limit, one.id).cmp(&(other.limit, other.id))
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
