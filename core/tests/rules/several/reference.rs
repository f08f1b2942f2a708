//! Holders and waiters, as simply as possible: one list of holds, one list of requests in order of arrival.

use super::server::{Answer, task_of};
use super::{Op, keys_of};

#[derive(Clone, Debug)]
struct Request {
    owner: usize,
    keys: Vec<usize>,
    write: bool,
    several: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    key: usize,
    owner: usize,
    write: bool,
}

#[derive(Debug, Default)]
pub(super) struct Reference {
    holds: Vec<Hold>,
    queue: Vec<Request>,
}

impl Reference {
    pub(super) fn run(&mut self, op: Op) -> Answer {
        let answer = match op {
            Op::Ask { owner, key, write } => self.ask(Request {
                owner,
                keys: vec![key],
                write,
                several: false,
            }),
            Op::Several { owner, keys } => self.ask(Request {
                owner,
                keys: keys_of(keys),
                write: true,
                several: true,
            }),
            Op::Release { owner, key } => {
                self.holds
                    .retain(|hold| (hold.owner, hold.key) != (owner, key));
                Answer::Done
            }
            Op::Leave { owner } => {
                self.queue.retain(|request| request.owner != owner);
                Answer::Done
            }
            Op::Pass {
                owner,
                new_owner,
                key,
            } => {
                self.pass(owner, new_owner, key);
                Answer::Done
            }
            Op::Del { key } => {
                self.holds.retain(|hold| hold.key != key);
                Answer::Done
            }
        };
        while self.refuse_one() || self.grant_one() {}
        answer
    }

    fn ask(&mut self, request: Request) -> Answer {
        let waits = self.queue.iter().any(|other| other.owner == request.owner);
        let holds = (self.holds.iter())
            .any(|hold| hold.owner == request.owner && request.keys.contains(&hold.key));
        if waits || holds {
            return Answer::Skipped;
        }
        self.queue.push(request.clone());
        match self.may_grant(self.queue.len() - 1) {
            true => {
                self.grant(self.queue.len() - 1);
                Answer::Granted
            }
            false => Answer::Waits,
        }
    }

    fn pass(&mut self, owner: usize, new_owner: usize, key: usize) {
        let holds = |owner: usize| {
            let mut at = self.holds.iter();
            at.position(|hold| (hold.owner, hold.key) == (owner, key))
        };
        let waits = self.waits_elsewhere(new_owner, key);
        if let Some(at) = holds(owner)
            && holds(new_owner).is_none()
            && !waits
        {
            self.holds[at].owner = new_owner;
        }
    }

    /// A request of its task waits, except one of its own that the pass refuses.
    fn waits_elsewhere(&self, owner: usize, key: usize) -> bool {
        let mut all = self.queue.iter();
        all.any(|other| {
            let is_refused = other.owner == owner && other.several && other.keys.contains(&key);
            task_of(other.owner) == task_of(owner) && !is_refused
        })
    }

    /// "If the owner comes to hold one of the keys in another way, the waiting request is answered with an error."
    fn refuse_one(&mut self) -> bool {
        let holds = |request: &Request| {
            (self.holds.iter())
                .any(|hold| hold.owner == request.owner && request.keys.contains(&hold.key))
        };
        let refused = self.queue.iter().position(holds);
        refused.map(|at| self.queue.remove(at)).is_some()
    }

    /// "It is granted when it is first in each of its queues, and every lock is free."
    fn grant_one(&mut self) -> bool {
        let found = (0..self.queue.len()).find(|at| self.may_grant(*at));
        found.map(|at| self.grant(at)).is_some()
    }

    fn may_grant(&self, at: usize) -> bool {
        let request = &self.queue[at];
        request.keys.iter().all(|key| {
            let is_first = !self.queue[..at]
                .iter()
                .any(|ahead| ahead.keys.contains(key));
            let mut holds = self.holds.iter().filter(|hold| hold.key == *key);
            is_first && holds.all(|hold| !hold.write && !request.write)
        })
    }

    fn grant(&mut self, at: usize) {
        let Request {
            owner, keys, write, ..
        } = self.queue.remove(at);
        let holds = keys.into_iter().map(|key| Hold { key, owner, write });
        self.holds.extend(holds);
    }

    pub(super) fn holders(&self, key: usize) -> Vec<(usize, bool)> {
        let at = self.holds.iter().filter(|hold| hold.key == key);
        let mut found: Vec<_> = at.map(|hold| (hold.owner, hold.write)).collect();
        found.sort_unstable();
        found
    }

    pub(super) fn queue(&self, key: usize) -> Vec<usize> {
        let at = self.queue.iter();
        let at = at.filter(|request| request.keys.contains(&key));
        at.map(|request| request.owner).collect()
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }
}
