//! The waiters of a task: its keys, the places of its owners there, and the flags that mark these in the lines.

use std::cmp::Ordering;

use super::Waiters;
use super::node::{Flags, LIMITED, Line, MEMBER, SEVERAL_KEYS, Task, WRITES};
use super::position::Position;
use crate::owner::OwnerRef;
use crate::tree::{self, NIL};
use crate::types::Mode;

impl Waiters {
    /// The root of the tree of `owner`'s task, or [`NIL`] if nobody of it waits.
    pub(crate) fn task_of(&self, owner: OwnerRef<'_>) -> u32 {
        if self.len() == 0 {
            return NIL;
        }
        let task = owner.task_owner();
        let hash = self.nodes.hash_task(owner);
        let found = self.tasks.find::<Task>(&self.nodes, hash, |root| {
            let waiting = self.node(root).waiter.owner.as_ref();
            waiting == owner || waiting.task_owner() == task
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
    pub(crate) fn first_request(&self, task: u32, key: u32, owner: OwnerRef<'_>) -> u32 {
        self.request_from(task, key, owner, Position::FIRST)
    }

    /// The first request of `owner` at `key` in or behind `position`, or [`NIL`].
    pub(crate) fn request_from(
        &self,
        task: u32,
        key: u32,
        owner: OwnerRef<'_>,
        position: Position,
    ) -> u32 {
        let found = tree::first_from::<Task>(&self.nodes, task, |slot| {
            let node = self.node(slot);
            let by_key = node.key.cmp(&key);
            let by_owner = by_key.then_with(|| node.waiter.owner.as_ref().cmp(&owner));
            by_owner.then_with(|| self.position(slot).cmp(&position)) != Ordering::Less
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

    /// The first request of the owner that follows the one in `slot` in the order of the task's keys and their owners, or [`NIL`].
    pub(crate) fn next_owner(&self, task: u32, slot: u32) -> u32 {
        let (key, owner) = (self.node(slot).key, self.node(slot).waiter.owner.as_ref());
        tree::first_from::<Task>(&self.nodes, task, |slot| {
            let node = self.node(slot);
            let by_key = node.key.cmp(&key);
            by_key.then_with(|| node.waiter.owner.as_ref().cmp(&owner)) == Ordering::Greater
        })
    }

    /// A request of the task at the first of its keys whose slot is `from` or higher, or [`NIL`]: the
    /// first one of an owner.
    pub(crate) fn key_from(&self, task: u32, from: u32) -> u32 {
        tree::first_from::<Task>(&self.nodes, task, |slot| self.node(slot).key >= from)
    }

    /// The request of the task that stands furthest ahead at `key`, or [`NIL`].
    pub(crate) fn first_of(&self, task: u32, key: u32) -> u32 {
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
            slot => self.node(slot).first_below,
        };
        let mut found = at;
        let mut left = links(at).left;
        while left != NIL {
            if self.node(left).key == key {
                found = self.nodes.ahead(found, left);
                found = self.nodes.ahead(found, below(links(left).right));
                left = links(left).left;
            } else {
                left = links(left).right;
            }
        }
        let mut right = links(at).right;
        while right != NIL {
            if self.node(right).key == key {
                found = self.nodes.ahead(found, right);
                found = self.nodes.ahead(found, below(links(right).left));
                right = links(right).right;
            } else {
                right = links(right).left;
            }
        }
        found
    }

    /// The task waits at several keys.
    pub(crate) fn waits_at_several(&self, task: u32) -> bool {
        if task == NIL {
            return false;
        }
        let first = tree::first::<Task>(&self.nodes, task);
        let last = tree::last::<Task>(&self.nodes, task);
        self.node(first).key != self.node(last).key
    }

    pub(super) fn enter_task(&mut self, slot: u32) {
        let (key, owner) = (self.node(slot).key, self.node(slot).waiter.owner.clone());
        let task = self.task_of(owner.as_ref());
        let waited_at_several = self.waits_at_several(task);
        self.unmark(task, key, owner.as_ref());
        let mut root = task;
        tree::insert::<Task>(&mut self.nodes, &mut root, slot);
        if task == NIL {
            self.tasks.insert::<Task>(&mut self.nodes, root);
        } else if root != task {
            self.tasks.replace::<Task>(&mut self.nodes, task, root);
        }
        self.mark(root, key, owner.as_ref(), waited_at_several);
    }

    pub(super) fn leave_task(&mut self, slot: u32) {
        let (key, owner) = (self.node(slot).key, self.node(slot).waiter.owner.clone());
        let task = self.task_at(slot);
        let waited_at_several = self.waits_at_several(task);
        self.unmark(task, key, owner.as_ref());
        let mut root = task;
        tree::remove::<Task>(&mut self.nodes, &mut root, slot);
        if root == NIL {
            self.tasks.remove::<Task>(&mut self.nodes, task);
        } else {
            if root != task {
                self.tasks.replace::<Task>(&mut self.nodes, task, root);
            }
            self.mark(root, key, owner.as_ref(), waited_at_several);
        }
    }

    /// What `owner` waits for at `key` is about to change.
    fn unmark(&mut self, task: u32, key: u32, owner: OwnerRef<'_>) {
        let first = self.first_request(task, key, owner);
        if first != NIL {
            self.set_flags(first, 0);
        }
        self.flag_first(task, key, false);
    }

    /// What `owner` waits for at `key` has changed.
    fn mark(&mut self, task: u32, key: u32, owner: OwnerRef<'_>, waited_at_several: bool) {
        let first = self.first_request(task, key, owner);
        if first != NIL {
            let sharing = self.node(first).waiter.terms.sharing;
            let is_member = sharing.keys().is_some();
            let writes = !is_member && self.asks_for_write(first, key, owner);
            let flag = |is: bool, flag: Flags| if is { flag } else { 0 };
            let limited = flag(sharing.limit().is_some(), LIMITED);
            let member = flag(is_member, MEMBER);
            self.set_flags(first, flag(writes, WRITES) | limited | member);
        }
        let waits_at_several = self.waits_at_several(task);
        if waits_at_several == waited_at_several {
            self.flag_first(task, key, waits_at_several);
            return;
        }
        // It waits at two keys now and waited at one before, or the other way round.
        let mut at = self.key_from(task, 0);
        while at != NIL {
            let key = self.node(at).key;
            self.flag_first(task, key, waits_at_several);
            at = self.key_from(task, key + 1);
        }
    }

    fn flag_first(&mut self, task: u32, key: u32, waits_at_several: bool) {
        let slot = self.first_of(task, key);
        if slot != NIL {
            let flags = self.node(slot).flags & !SEVERAL_KEYS;
            self.set_flags(
                slot,
                if waits_at_several {
                    flags | SEVERAL_KEYS
                } else {
                    flags
                },
            );
        }
    }

    fn asks_for_write(&self, first: u32, key: u32, owner: OwnerRef<'_>) -> bool {
        let write = |slot: u32| self.node(slot).waiter.terms.mode() == Mode::Write;
        let write_below = |slot: u32| self.node(slot).write_below;
        if write(first) {
            return true;
        }
        let next = tree::next_with::<Task>(&self.nodes, first, write, write_below);
        next != NIL && self.is_request_of(next, key, owner)
    }

    fn set_flags(&mut self, slot: u32, flags: Flags) {
        let node = &mut self.nodes.slab[slot];
        if node.flags != flags {
            node.flags = flags;
            tree::changed::<Line>(&mut self.nodes, slot);
        }
    }
}
