//! Who waits for whom, and whether one more wait would close a circle.
//!
//! A request waits for every other owner that holds incompatibly, and for every other owner that
//! stands ahead of it with an incompatible request. The search walks from the request that is
//! about to wait, breadth first, and ends where it meets its own owner again: a shortest cycle.
//!
//! It is made only when a request is about to wait, and it is kept small by two observations.
//! Whoever waits in one queue only waits for nobody but its holders and those ahead, so a walk
//! along a queue needs to stop only at *roamers*, who wait in several. And a holder matters only
//! if it waits somewhere itself. So a thousand waiters of one lock cost a look at its holder.
//!
//! An owner's later requests in one queue stand, for this purpose, where its first one does: they
//! are decided when that is granted, so nobody in between is waited for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::lock::Lock;
use crate::queue::{Place, Rank, WaiterId};
use crate::queues::{KeyId, Queues};
use crate::types::{Instant, Mode, Owner};

/// A wait that is about to begin, or that has just become an upgrade.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Where.
    pub key: KeyId,
    /// Whose.
    pub owner: Owner,
    /// For what.
    pub mode: Mode,
    /// It stands ahead of the line.
    pub upgrade: bool,
}

impl Queues {
    /// The keys of a cycle that `wait` closes, from its own key on; `None` if it closes none.
    ///
    /// `look` is asked for the lock of a key, and calls back with it if somebody holds there.
    pub fn find_cycle(
        &self,
        wait: &Wait,
        now: Instant,
        look: impl FnMut(&KeyId, &mut dyn FnMut(&Lock)),
    ) -> Option<Vec<KeyId>> {
        let rank = if wait.upgrade {
            Rank::Upgrade
        } else {
            Rank::Line
        };
        let end = Place {
            rank,
            id: WaiterId(u64::MAX),
        };
        let place = self
            .place_in(&wait.key, &wait.owner)
            .map_or(end, |first| first.min(end));
        let mut search = Search {
            queues: self,
            target: &wait.owner,
            now,
            look,
            reached: BTreeMap::new(),
            pending: VecDeque::new(),
            walked: BTreeSet::new(),
        };
        search.walk(&wait.owner, &wait.key, wait.mode, place);
        while let Some(owner) = search.pending.pop_front() {
            if owner == wait.owner {
                return Some(search.path());
            }
            for key in self.owners.get(&owner).into_iter().flat_map(BTreeMap::keys) {
                let Some(queue) = self.get(key.db, &key.name) else {
                    continue;
                };
                let Some(first) = queue.places_of(&owner).next() else {
                    continue;
                };
                for place in queue.places_of(&owner) {
                    if let Some(waiter) = queue.get(place) {
                        search.walk(&owner, key, waiter.mode, first);
                    }
                }
            }
        }
        None
    }

    fn place_in(&self, key: &KeyId, owner: &Owner) -> Option<Place> {
        self.get(key.db, &key.name)?.places_of(owner).next()
    }
}

struct Search<'a, L> {
    queues: &'a Queues,
    target: &'a Owner,
    now: Instant,
    look: L,
    /// Every owner that is waited for, with who waits for it and where.
    reached: BTreeMap<Owner, (Owner, KeyId)>,
    pending: VecDeque<Owner>,
    /// What has been walked already, so that no queue is walked twice for the same.
    walked: BTreeSet<(KeyId, bool, Place)>,
}

impl<L: FnMut(&KeyId, &mut dyn FnMut(&Lock))> Search<'_, L> {
    /// Reaches whom a request of `owner` for `mode` at `place` waits for.
    fn walk(&mut self, owner: &Owner, key: &KeyId, mode: Mode, place: Place) {
        if !self
            .walked
            .insert((key.clone(), mode == Mode::Write, place))
        {
            return;
        }
        self.walk_queue(owner, key, mode, place);
        self.walk_holders(owner, key, mode);
        if mode == Mode::Read
            && let Some(queue) = self.queues.get(key.db, &key.name)
            && let Some(writer) = queue.writer_ahead_of(place)
            && queue
                .get(writer)
                .is_some_and(|waiter| waiter.owner != *owner)
        {
            // Through the writer it waits for all that the writer waits for.
            self.walk(owner, key, Mode::Write, writer);
        }
    }

    fn walk_queue(&mut self, owner: &Owner, key: &KeyId, mode: Mode, place: Place) {
        let Some(queue) = self.queues.get(key.db, &key.name) else {
            return;
        };
        let ahead = |other: &Owner| {
            queue
                .places_of(other)
                .take_while(|other| *other < place)
                .any(|other| {
                    let writes = queue
                        .get(other)
                        .is_some_and(|waiter| waiter.mode == Mode::Write);
                    mode == Mode::Write || writes
                })
        };
        let candidates = std::iter::once(self.target).chain(&self.queues.roamers);
        let found: Vec<Owner> = candidates
            .filter(|other| *other != owner && ahead(other))
            .cloned()
            .collect();
        for other in found {
            self.reach(&other, owner, key);
        }
    }

    fn walk_holders(&mut self, owner: &Owner, key: &KeyId, mode: Mode) {
        let (owners, target, now) = (&self.queues.owners, self.target, self.now);
        let mut found: Vec<Owner> = Vec::new();
        (self.look)(key, &mut |lock| {
            let counts = |other: &Owner| {
                let waits = other == target || owners.contains_key(other);
                let stake = lock.hold(other.as_ref());
                let conflicts = stake.is_some_and(|stake| {
                    !stake.is_over(now) && (mode == Mode::Write || stake.write > 0)
                });
                waits && conflicts && other != owner
            };
            if lock.len() <= owners.len() {
                found.extend(
                    lock.holds()
                        .map(|(other, _)| other)
                        .filter(|o| counts(o))
                        .cloned(),
                );
            } else {
                let candidates = std::iter::once(target).chain(owners.keys());
                found.extend(candidates.filter(|other| counts(other)).cloned());
            }
        });
        for other in found {
            self.reach(&other, owner, key);
        }
    }

    fn reach(&mut self, other: &Owner, from: &Owner, key: &KeyId) {
        if !self.reached.contains_key(other) {
            self.reached
                .insert(other.clone(), (from.clone(), key.clone()));
            self.pending.push_back(other.clone());
        }
    }

    /// The keys from the target's wait round to the target, each once.
    fn path(&self) -> Vec<KeyId> {
        let mut keys: Vec<KeyId> = Vec::new();
        let mut named: BTreeSet<&KeyId> = BTreeSet::new();
        let mut owner = self.target;
        while let Some((from, key)) = self.reached.get(owner) {
            if named.insert(key) {
                keys.push(key.clone());
            }
            owner = from;
            if owner == self.target {
                break;
            }
        }
        keys.reverse();
        keys
    }
}
