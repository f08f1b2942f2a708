//! Locks with very many readers, which keep track of the readers whose tasks wait somewhere.
//!
//! A search for deadlocks that reaches such a lock follows only these: the others lead nowhere, however many they are. To find them during
//! the search would take a check of each reader or each waiter. So a crowd is tracked from its 128th reader on, whether or not anybody
//! waits at its key: each task that begins or ceases to wait costs a check of each crowd, each owner that comes to read beside a crowd one
//! check of the waiters, and an owner that leaves a crowd nothing more. A lock with one holder, or a few, is not affected.

use super::waiters::Waiters;
use crate::lock::Lock;
use crate::observed::ObservedReaders;
use crate::owner::OwnerRef;

/// A crowd begins with this many readers, a power of two.
const CROWD: usize = 128;
/// At most this many crowds are kept. (Each costs one check whenever a task begins to wait.)
const MOST_CROWDS: usize = 128;
/// At most this many checks build a crowd that did not grow reader by reader.
const MOST_STEPS: usize = 1_024;

/// The crowds that are known.
#[derive(Debug, Default)]
pub(super) struct Crowds(Vec<ObservedReaders>);

impl Crowds {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The task of `owner` begins to wait.
    pub(super) fn begin_wait(&mut self, owner: OwnerRef<'_>) {
        self.retain(|crowd| crowd.with(|readers| readers.note_waiting(owner)).is_some());
    }

    /// The task of `owner` no longer waits.
    pub(super) fn end_wait(&mut self, owner: OwnerRef<'_>) {
        self.retain(|crowd| {
            crowd
                .with(|readers| readers.waiting.remove(owner))
                .is_some()
        });
    }

    /// There is room for one more. Crowds that have dispersed make room.
    fn has_room(&mut self) -> bool {
        if self.0.len() == MOST_CROWDS {
            self.retain(|crowd| {
                let stays = crowd.with(|readers| {
                    let is_crowd = readers.len() >= CROWD / 2;
                    if !is_crowd {
                        readers.waiting.end();
                    }
                    is_crowd
                });
                stays == Some(true)
            });
        }
        self.0.len() < MOST_CROWDS
    }

    fn retain(&mut self, is_one: impl FnMut(&ObservedReaders) -> bool) {
        self.0.retain(is_one);
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }

    /// `owner` holds `lock` from now on.
    pub(super) fn has_holder(&mut self, lock: &Lock, owner: OwnerRef<'_>, waiters: &Waiters) {
        let Some(readers) = lock.several() else {
            return;
        };
        let (len, is_known) = readers.with(|readers| (readers.len(), readers.waiting.is_known()));
        if is_known {
            if waiters.waits(owner) {
                readers.with(|readers| readers.note_waiting(owner));
            }
        } else if len >= CROWD && len.is_power_of_two() && len.min(waiters.len()) <= MOST_STEPS {
            self.has_holders(lock, waiters);
        }
    }

    /// `lock` has arrived with all its holders.
    pub(super) fn has_holders(&mut self, lock: &Lock, waiters: &Waiters) {
        let Some(readers) = lock.several() else {
            return;
        };
        let (len, is_known) = readers.with(|readers| (readers.len(), readers.waiting.is_known()));
        if len < CROWD || is_known || !self.has_room() {
            return;
        }
        readers.with(|readers| {
            readers.waiting.begin();
            if waiters.len() <= len {
                for waiter in waiters.iter() {
                    readers.note_waiting(waiter.owner.as_ref());
                }
                return;
            }
            let owners = readers.iter().map(|(owner, _)| owner);
            let waiting = owners.filter(|owner| waiters.waits(owner.as_ref()));
            for owner in waiting.cloned().collect::<Vec<_>>() {
                readers.note_waiting(owner.as_ref());
            }
        });
        self.0.push(readers.observe());
    }
}

#[cfg(test)]
mod tests;
