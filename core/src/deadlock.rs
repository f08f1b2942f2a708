//! Who waits for whom, and whether one more wait would close a circle.
//!
//! A request waits for every other owner that holds incompatibly, and for every other owner that
//! stands ahead of it with an incompatible request. The search walks from the request that is
//! about to wait, breadth first, and ends where it meets its own owner again: a shortest cycle.
//!
//! It is made only when a request is about to wait, and it is kept small by these observations.
//!
//! * Whoever waits in one queue only waits for nobody but its holders and those ahead. So a walk
//!   along a queue needs to stop only at *roamers*, who wait in several: a thousand waiters of one
//!   lock cost a look at the lock.
//! * A reader waits for the last writer ahead of it and, through that writer, for all that a
//!   writer in the same place waits for. So a walk is told whole by how far it goes, and no queue
//!   is walked twice over the same stretch.
//! * A holder matters only if it waits somewhere itself, and whoever waits in the line of a lock
//!   does not hold it. So thousands that read a lock cost nothing unless as many wait elsewhere.
//!
//! An owner's later requests in one queue stand, for this purpose, where its first one does: they
//! are decided when that is granted, so nobody in between is waited for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::observed::Observed;
use crate::owner::Owner;
use crate::place::{Place, Rank, Standing};
use crate::queue::Queue;
use crate::queues::{KeyId, Queues};
use crate::types::{Instant, Mode};

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
    /// The keys of a cycle that `wait` closes, each once, from its own key on; `None` if it closes
    /// none.
    ///
    /// `held` is who holds at the wait's own key; of other keys the queues know themselves.
    ///
    /// Where the owner waits for the same key already, `wait` stands ahead of others, who come to
    /// wait for it: there a cycle counts by whichever of the owner's waits it goes.
    pub fn find_cycle(&self, wait: &Wait, held: &Observed, now: Instant) -> Option<Vec<KeyId>> {
        let rank = if wait.upgrade {
            Rank::Upgrade
        } else {
            Rank::Line
        };
        let end = Place::end_of(rank);
        let stands = self
            .standing(&wait.key, &wait.owner)
            .and_then(Standing::first);
        let mut search = Search {
            queues: self,
            wait,
            place: stands.map_or(end, |first| first.min(end)),
            held,
            now,
            reached: BTreeMap::new(),
            pending: VecDeque::new(),
            walked: BTreeMap::new(),
        };
        search.walk(&wait.owner, &wait.key, wait.mode, search.place);
        if stands.is_some() {
            search.walk_from(&wait.owner);
        }
        while !search.reached.contains_key(&wait.owner) {
            let owner = search.pending.pop_front()?;
            search.walk_from(owner);
        }
        Some(search.path())
    }

    fn standing(&self, key: &KeyId, owner: &Owner) -> Option<&Standing> {
        self.get(key.db, &key.name)?.standing(owner)
    }
}

struct Search<'a> {
    queues: &'a Queues,
    wait: &'a Wait,
    /// Where `wait` stands, or is to stand.
    place: Place,
    held: &'a Observed,
    now: Instant,
    /// Every owner that is waited for, with who waits for it and where.
    reached: BTreeMap<&'a Owner, (&'a Owner, &'a KeyId)>,
    pending: VecDeque<&'a Owner>,
    walked: BTreeMap<&'a KeyId, Walked>,
}

/// Whom of a key the search has reached already.
#[derive(Clone, Copy)]
struct Walked {
    /// Everybody who stands ahead of this.
    ahead_of: Place,
    holders: Holders,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holders {
    None,
    /// The one that holds write, if one does.
    Writer,
    All,
}

impl<'a> Search<'a> {
    /// Reaches whom any of `owner`'s waits waits for.
    fn walk_from(&mut self, owner: &'a Owner) {
        for key in self
            .queues
            .owners
            .get(owner)
            .into_iter()
            .flat_map(BTreeMap::keys)
        {
            if let Some(standing) = self.queues.standing(key, owner)
                && let Some(first) = standing.first()
            {
                self.walk(owner, key, standing.mode(), first);
            }
        }
    }

    /// Reaches whom `owner` waits for with a request for `mode` at `place`.
    fn walk(&mut self, owner: &'a Owner, key: &'a KeyId, mode: Mode, place: Place) {
        let queue = self.queues.get(key.db, &key.name);
        // Where its waits are those of a writer, and how far they go.
        let ahead_of = match mode {
            Mode::Write => Some(place),
            Mode::Read => self.writer_ahead_of(key, queue, place).map(Place::behind),
        };
        let wanted = Walked {
            ahead_of: ahead_of.unwrap_or(Place::FIRST),
            holders: ahead_of.map_or(Holders::Writer, |_| Holders::All),
        };
        let walked = self.walked.get(key).copied().unwrap_or(Walked {
            ahead_of: Place::FIRST,
            holders: Holders::None,
        });
        if wanted.ahead_of <= walked.ahead_of && wanted.holders <= walked.holders {
            return;
        }
        if wanted.holders > walked.holders {
            let holders = self.look_at_holders(owner, key, queue, place, wanted.holders);
            let Some(holders) = holders else { return };
            for holder in holders {
                self.reach(holder, owner, key);
            }
        }
        self.reach_queue(owner, key, queue, walked.ahead_of, wanted.ahead_of);
        let is_target = *owner == self.wait.owner;
        self.walked.insert(
            key,
            Walked {
                ahead_of: wanted.ahead_of.max(walked.ahead_of),
                // The target does not reach itself, and somebody else may.
                holders: if is_target {
                    walked.holders
                } else {
                    wanted.holders.max(walked.holders)
                },
            },
        );
    }

    fn writer_ahead_of(&self, key: &KeyId, queue: Option<&Queue>, place: Place) -> Option<Place> {
        let queued = queue.and_then(|queue| queue.writer_ahead_of(place));
        let is_own = self.wait.mode == Mode::Write && self.place < place && *key == self.wait.key;
        queued.max(is_own.then_some(self.place))
    }

    /// Reaches roamers and the target where they stand in the queue from `from` to before `to`.
    fn reach_queue(
        &mut self,
        owner: &'a Owner,
        key: &'a KeyId,
        queue: Option<&'a Queue>,
        from: Place,
        to: Place,
    ) {
        if to <= from {
            return;
        }
        let target = &self.wait.owner;
        let stands = if *key == self.wait.key {
            Some(self.place)
        } else {
            queue
                .and_then(|queue| queue.standing(target))
                .and_then(Standing::first)
        };
        if stands.is_some_and(|place| (from..to).contains(&place)) {
            self.reach(target, owner, key);
        }
        for roamer in queue.into_iter().flat_map(|queue| queue.roamers(from..to)) {
            self.reach(roamer, owner, key);
        }
    }

    /// Those of `which` holders that wait somewhere, or are the target; `None` if `owner`, whose
    /// request stands at `place`, waits for nobody.
    fn look_at_holders(
        &mut self,
        owner: &Owner,
        key: &KeyId,
        queue: Option<&'a Queue>,
        place: Place,
        which: Holders,
    ) -> Option<Vec<&'a Owner>> {
        let held = self.held_at(key, queue);
        if place.rank == Rank::Line && held.holds(owner.as_ref(), self.now) {
            // Only a grace makes it wait, and when that is over it is decided first.
            return None;
        }
        let mut holders = self.waiting_holders(key, queue, held, which);
        holders.retain(|holder| *holder != owner);
        Some(holders)
    }

    fn held_at(&self, key: &KeyId, queue: Option<&'a Queue>) -> &'a Observed {
        if *key == self.wait.key {
            return self.held;
        }
        queue.map_or(&Observed::Free, Queue::held)
    }

    /// Those of `which` that hold and wait somewhere or are the target.
    fn waiting_holders(
        &self,
        key: &KeyId,
        queue: Option<&'a Queue>,
        held: &Observed,
        which: Holders,
    ) -> Vec<&'a Owner> {
        let readers = match held {
            Observed::Free => return Vec::new(),
            Observed::One { owner, mode, .. } => {
                let counts = which == Holders::All || *mode == Mode::Write;
                let is_live = held.holds(owner.as_ref(), self.now);
                let holder = self.waiting(owner).filter(|_| counts && is_live);
                return holder.into_iter().collect();
            }
            Observed::Many(_) if which == Holders::Writer => return Vec::new(),
            Observed::Many(readers) => readers,
        };
        let line = queue.map_or(0, |queue| queue.len() - queue.upgraders_len());
        let mut found = Vec::new();
        if readers.live_len(self.now) <= self.queues.len() - line {
            readers.each(self.now, |owner| {
                found.extend(self.waiting(owner));
                true
            });
            return found;
        }
        let others = self.queues.iter();
        let others = others.filter(|(db, name, _)| (*db, &***name) != (key.db, &*key.name));
        let others = others.flat_map(|(_, _, queue)| queue.owners());
        let upgraders = queue.into_iter().flat_map(Queue::upgraders);
        let waiting = others.chain(upgraders).chain([&self.wait.owner]);
        found.extend(waiting.filter(|owner| readers.holds(owner.as_ref(), self.now)));
        // The queues come in no order, and of cycles equally short always the same is to be told.
        found.sort_unstable();
        found
    }

    /// `owner`, if it waits somewhere or is the target.
    fn waiting(&self, owner: &Owner) -> Option<&'a Owner> {
        if *owner == self.wait.owner {
            return Some(&self.wait.owner);
        }
        let waiting = self.queues.owners.get_key_value(owner);
        waiting.map(|(owner, _)| owner)
    }

    fn reach(&mut self, other: &'a Owner, from: &'a Owner, key: &'a KeyId) {
        if !self.reached.contains_key(other) {
            self.reached.insert(other, (from, key));
            self.pending.push_back(other);
        }
    }

    /// The keys of the cycle, from the target round to the target.
    fn path(&self) -> Vec<KeyId> {
        let target = &self.wait.owner;
        let mut keys: Vec<&KeyId> = Vec::new();
        let mut owner = target;
        while let Some((from, key)) = self.reached.get(owner) {
            keys.push(key);
            owner = from;
            if owner == target {
                break;
            }
        }
        keys.reverse();
        if let Some(own) = keys.iter().position(|key| **key == self.wait.key) {
            keys.rotate_left(own);
        }
        let mut seen = BTreeSet::new();
        keys.retain(|key| seen.insert(*key));
        keys.into_iter().cloned().collect()
    }
}
