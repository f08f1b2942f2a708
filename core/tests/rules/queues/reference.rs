//! The contract, sections 1 to 3, as simply as possible: for every key a list of holds and a list of waiters, searched from the start, with
//! plain numbers. Nothing here is fast.

use super::server::{Asked, KEYS};

const MAX_COUNT: u64 = (1 << 31) - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) owner: usize,
    pub(crate) write: u64,
    pub(crate) read: u64,
    pub(crate) token: u64,
    /// Over from this millisecond on.
    pub(crate) ends: u64,
    /// Changes with every change of the lock.
    pub(crate) touched: u64,
    pub(crate) revoked: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) id: u64,
    pub(crate) asked: Asked,
    /// It stands ahead of the queue.
    pub(crate) upgrade: bool,
    pub(crate) since: u64,
    pub(crate) limit: Option<u64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Key {
    pub(crate) holds: Vec<Hold>,
    /// In queue order.
    pub(crate) queue: Vec<Waiter>,
    /// When a waiter may have to be granted, because a hold ends.
    pub(crate) deadline: Option<u64>,
}

impl Key {
    fn expect_deadline(&mut self) {
        let ends = self.holds.iter().map(|hold| hold.ends);
        self.deadline = ends.min().filter(|_| !self.queue.is_empty());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    New,
    Reentry,
    Upgrade,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted(Kind, Hold),
    CountTooHigh,
    NoRoom,
    Revoked,
    /// An upgrade stands ahead of the queue.
    Busy {
        upgrade: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted {
        kind: Kind,
        hold: Hold,
        before: Option<Hold>,
        alone: bool,
    },
    UpgradeLost,
    WaitOver,
    CountTooHigh,
    NoRoom,
    Revoked,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision {
    pub(crate) waiter: Waiter,
    pub(crate) verdict: Verdict,
}

/// The result of a settle: decisions in order, and waiters that have become upgrades.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settled {
    pub(crate) decided: Vec<Decision>,
    pub(crate) upgrading: Vec<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Reference {
    pub(crate) keys: [Key; KEYS],
    pub(crate) last_token: u64,
    pub(crate) now: u64,
    pub(crate) wall: u64,
    pub(crate) grace: bool,
    touches: u64,
}

impl Reference {
    pub(crate) fn hold(&self, key: usize, owner: usize) -> Option<Hold> {
        let mut holds = self.keys[key].holds.iter();
        holds.find(|hold| hold.owner == owner).copied()
    }

    fn put(&mut self, key: usize, hold: Hold) {
        self.keys[key].holds.retain(|old| old.owner != hold.owner);
        if hold.write + hold.read > 0 {
            self.keys[key].holds.push(hold);
        }
    }

    fn touch(&mut self) -> u64 {
        self.touches += 1;
        self.touches
    }

    /// "Two holds are compatible when both are read only. An owner is always compatible with
    /// itself."
    pub(crate) fn is_compatible(&self, key: usize, asked: &Asked) -> bool {
        self.keys[key]
            .holds
            .iter()
            .all(|hold| hold.owner == asked.owner || (!asked.write && hold.write == 0))
    }

    /// "The read counts of all live holds on the key would then add up to at most `n`."
    fn is_within_limit(&self, key: usize, asked: &Asked, count: u64) -> bool {
        let others = self.keys[key].holds.iter();
        let others = others.filter(|hold| hold.owner != asked.owner);
        let sum: u64 = others.map(|hold| hold.read).sum();
        asked.limit.is_none_or(|limit| sum + count <= limit.into())
    }

    /// Whether an owner that holds nothing would be granted this if it were first in the queue.
    pub(crate) fn may_come_in(&self, key: usize, asked: &Asked) -> bool {
        let count = asked.holds.unwrap_or(1).into();
        self.is_compatible(key, asked) && self.is_within_limit(key, asked, count)
    }

    /// "A hold is over from the millisecond its lease ends."
    pub(crate) fn end_holds(&mut self, key: usize) {
        let now = self.now;
        self.keys[key].holds.retain(|hold| hold.ends > now);
    }

    /// "Granted at once only if it is compatible with every hold and nobody is queued, or its
    /// owner holds the lock already."
    pub(crate) fn ask(&mut self, key: usize, asked: &Asked) -> Outcome {
        let mine = self.hold(key, asked.owner);
        if mine.is_some_and(|mine| mine.revoked) {
            return Outcome::Revoked;
        }
        if self.grace {
            let upgrade = asked.write && mine.is_some_and(|mine| mine.write == 0);
            return Outcome::Busy { upgrade };
        }
        if !self.keys[key].queue.is_empty() && mine.is_none() {
            return Outcome::Busy { upgrade: false };
        }
        self.acquire(key, asked)
    }

    /// Acquires as if nobody were queued.
    fn acquire(&mut self, key: usize, asked: &Asked) -> Outcome {
        let mine = self.hold(key, asked.owner);
        if mine.is_some_and(|mine| mine.revoked) {
            return Outcome::Revoked;
        }
        // An owner that holds write is the only holder, so all its requests are compatible.
        if !self.is_compatible(key, asked) {
            return Outcome::Busy {
                upgrade: mine.is_some(),
            };
        }
        let mut hold = mine.unwrap_or(Hold {
            owner: asked.owner,
            write: 0,
            read: 0,
            token: 0,
            ends: 0,
            touched: 0,
            revoked: false,
        });
        let kind = match mine {
            None => Kind::New,
            Some(hold) if asked.write && hold.write == 0 => Kind::Upgrade,
            Some(_) => Kind::Reentry,
        };
        let count = if asked.write {
            &mut hold.write
        } else {
            &mut hold.read
        };
        let before = *count;
        *count = asked.holds.map_or(before + 1, u64::from);
        if *count > MAX_COUNT {
            return Outcome::CountTooHigh;
        }
        if *count > before && !self.is_within_limit(key, asked, *count) {
            return match mine {
                Some(_) => Outcome::NoRoom,
                None => Outcome::Busy { upgrade: false },
            };
        }
        if kind != Kind::Reentry {
            let least = self.wall.max(asked.fence.unwrap_or(0));
            self.last_token = (self.last_token + 1).max(least);
            hold.token = self.last_token;
        }
        hold.ends = hold.ends.max(self.now + asked.lease);
        hold.touched = self.touch();
        self.put(key, hold);
        Outcome::Granted(kind, hold)
    }

    /// Queues a request: behind the other upgrades, or behind all.
    pub(crate) fn push(&mut self, key: usize, waiter: Waiter) {
        let queue = &mut self.keys[key].queue;
        let is_ahead = |other: &Waiter| {
            (other.upgrade && !waiter.upgrade)
                || (other.upgrade == waiter.upgrade && other.id < waiter.id)
        };
        let place = queue.iter().take_while(|other| is_ahead(other)).count();
        queue.insert(place, waiter);
        self.keys[key].expect_deadline();
    }

    pub(crate) fn remove(&mut self, key: usize, id: u64) -> Option<Waiter> {
        let queue = &mut self.keys[key].queue;
        let place = queue.iter().position(|waiter| waiter.id == id)?;
        let waiter = queue.remove(place);
        if queue.is_empty() {
            self.keys[key].deadline = None;
        }
        Some(waiter)
    }

    /// Applies the rules of section 3 until none applies. In a grace nobody is granted.
    pub(crate) fn settle(&mut self, key: usize) -> Settled {
        let mut settled = Settled::default();
        self.end_holds(key);
        while self.answer_lost_upgrade(key, &mut settled)
            || (!self.grace
                && (self.decide_own(key, &mut settled) || self.let_head_in(key, &mut settled)))
        {
        }
        self.keys[key].expect_deadline();
        settled
    }

    /// "An upgrader whose read hold ends while it waits is answered null at once", and so is one whose time is up.
    fn answer_lost_upgrade(&mut self, key: usize, settled: &mut Settled) -> bool {
        let is_lost = |waiter: &Waiter| {
            waiter.upgrade && (self.is_over(waiter) || self.hold(key, waiter.asked.owner).is_none())
        };
        let lost = self.keys[key].queue.iter().position(is_lost);
        let Some(place) = lost else { return false };
        let waiter = self.keys[key].queue.remove(place);
        let verdict = Verdict::UpgradeLost;
        settled.decided.push(Decision { waiter, verdict });
        true
    }

    /// "When an owner comes to hold the lock, its own queued requests are decided first, as if
    /// asked now (re-entry or upgrade)."
    fn decide_own(&mut self, key: usize, settled: &mut Settled) -> bool {
        for waiter in self.keys[key].queue.clone() {
            if self.hold(key, waiter.asked.owner).is_none() {
                continue;
            }
            if self.decide(key, waiter, settled) {
                return true;
            }
            if !waiter.upgrade {
                self.remove(key, waiter.id);
                let upgrade = true;
                self.push(key, Waiter { upgrade, ..waiter });
                settled.upgrading.push(waiter.id);
                return true;
            }
        }
        false
    }

    /// "A free place goes straight to the head of the queue."
    fn let_head_in(&mut self, key: usize, settled: &mut Settled) -> bool {
        match self.keys[key].queue.first().copied() {
            Some(waiter) => self.decide(key, waiter, settled),
            None => false,
        }
    }

    fn is_over(&self, waiter: &Waiter) -> bool {
        waiter.limit.is_some_and(|limit| limit <= self.now)
    }

    /// "Null if the lock was not granted within the wait": also where nobody has looked since it was over.
    fn decide(&mut self, key: usize, waiter: Waiter, settled: &mut Settled) -> bool {
        if self.is_over(&waiter) {
            self.remove(key, waiter.id);
            let verdict = Verdict::WaitOver;
            settled.decided.push(Decision { waiter, verdict });
            return true;
        }
        let before = self.hold(key, waiter.asked.owner);
        let verdict = match self.acquire(key, &waiter.asked) {
            Outcome::Busy { .. } => return false,
            Outcome::CountTooHigh => Verdict::CountTooHigh,
            Outcome::NoRoom => Verdict::NoRoom,
            Outcome::Revoked => Verdict::Revoked,
            Outcome::Granted(kind, hold) => Verdict::Granted {
                kind,
                hold,
                before,
                alone: self.keys[key].holds.len() == 1,
            },
        };
        self.remove(key, waiter.id);
        settled.decided.push(Decision { waiter, verdict });
        true
    }

    /// How many holds are left, `None` for null.
    pub(crate) fn release(
        &mut self,
        key: usize,
        owner: usize,
        write: bool,
        all: bool,
    ) -> Option<u64> {
        let mut hold = self.hold(key, owner)?;
        if all {
            (hold.write, hold.read) = (0, 0);
        } else if write {
            hold.write = hold.write.checked_sub(1)?;
        } else {
            hold.read = hold.read.checked_sub(1)?;
        }
        hold.touched = self.touch();
        self.put(key, hold);
        Some(hold.write + hold.read)
    }

    pub(crate) fn renew(&mut self, key: usize, owner: usize, lease: u64) -> bool {
        let Some(mut hold) = self.hold(key, owner).filter(|hold| !hold.revoked) else {
            return false;
        };
        hold.ends = hold.ends.max(self.now + lease);
        hold.touched = self.touch();
        self.put(key, hold);
        true
    }

    /// "Transfers the whole hold." The new token, `None` for null and for an error.
    pub(crate) fn pass(&mut self, key: usize, owners: [usize; 2], lease: u64) -> Option<u64> {
        let [old, new] = owners;
        let hold = self.hold(key, old).filter(|hold| !hold.revoked)?;
        if self.hold(key, new).is_some() {
            return None;
        }
        self.keys[key].holds.retain(|hold| hold.owner != old);
        self.last_token = (self.last_token + 1).max(self.wall);
        let passed = Hold {
            owner: new,
            token: self.last_token,
            ends: self.now + lease,
            touched: self.touch(),
            ..hold
        };
        self.put(key, passed);
        Some(self.last_token)
    }

    /// "REVOKE does not count as touching the hold." The owner's requests here, which are refused.
    pub(crate) fn revoke(&mut self, key: usize, owner: usize) -> Option<Vec<u64>> {
        let mut hold = self.hold(key, owner)?;
        hold.revoked = true;
        self.put(key, hold);
        let own = self.keys[key].queue.iter();
        let own = own.filter(|waiter| waiter.asked.owner == owner);
        Some(own.map(|waiter| waiter.id).collect())
    }

    /// A grant that could not be delivered is given back, "unless the same owner has been
    /// answered on that hold since". That "never raises a count, not even one that the grant itself had lowered, and never
    /// lifts a revocation".
    pub(crate) fn undo(&mut self, key: usize, granted: Hold, before: Option<Hold>) -> bool {
        let held = match self.hold(key, granted.owner) {
            Some(hold) if hold.touched == granted.touched => hold,
            _ => return false,
        };
        let before = before.map(|before| Hold {
            write: before.write.min(held.write),
            read: before.read.min(held.read),
            revoked: held.revoked,
            ..before
        });
        self.keys[key]
            .holds
            .retain(|hold| hold.owner != granted.owner);
        self.keys[key].holds.extend(before);
        true
    }
}
