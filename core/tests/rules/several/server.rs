//! The server in memory with numbers for keys and owners. No owner has more than one request.

use std::collections::BTreeMap;
use std::ops::Range;

use mortise_core::{
    Db, How, Instant, KeyId, Micros, Mode, Owner, Pass, Queues, Release, Request, Sharing, Terms,
    WaiterId,
};
use mortise_memory_server::{self as memory, Ask, Ended};

use super::{Op, keys_of};
use crate::requests;

pub(super) const KEYS: usize = 4;
pub(super) const OWNERS: usize = 12;
/// Owners without a task.
pub(super) const ALONE: Range<usize> = 0..5;
/// Two owners without a task, two tasks of two names each, and one of three.
pub(super) const OF_TASKS: Range<usize> = 3..12;
pub(super) const NOW: Instant = Instant::from_millis(1_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The reply to steps that request nothing.
    Done,
    /// Refused: the owner waits already, or holds one of the keys.
    Skipped,
    Granted,
    Waits,
    Deadlock,
}

/// A request that was about to wait.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) owner: usize,
    pub(super) keys: Vec<usize>,
    pub(super) write: bool,
    pub(super) several: bool,
    pub(super) upgrade: bool,
}

#[derive(Debug)]
pub(super) struct Server {
    memory: memory::Server,
    /// Readers may ask for write.
    pub(super) upgrades: bool,
    /// Owners of one task do not meet at a key.
    pub(super) apart: bool,
    pub(super) last_wait: Option<Waiting>,
    /// The only request of each owner.
    waiting: BTreeMap<usize, WaiterId>,
}

pub(super) fn key_id(key: usize) -> KeyId {
    KeyId {
        db: Db(0),
        name: format!("key-{key}").into_bytes().into(),
    }
}

fn number(key: &KeyId) -> usize {
    (0..KEYS)
        .find(|number| key_id(*number) == *key)
        .expect("a key of the tests")
}

/// The task of an owner: the first of its names. An owner without a task is one by itself.
pub(super) fn task_of(number: usize) -> usize {
    match number {
        5..7 => 5,
        7..9 => 7,
        9..12 => 9,
        alone => alone,
    }
}

pub(super) fn owner_of(number: usize) -> Owner {
    let name = match number {
        5..12 => format!("task-{}##{number}", task_of(number)),
        _ => format!("owner-{number}"),
    };
    requests::named(&name)
}

pub(super) fn owner_number(owner: &Owner) -> usize {
    (0..OWNERS)
        .find(|number| owner_of(*number) == *owner)
        .expect("an owner of the tests")
}

pub(super) fn terms(sharing: Sharing) -> Terms {
    requests::terms(sharing, 60_000)
}

impl Server {
    pub(super) fn new(ignore_cycles: bool) -> Self {
        Self {
            memory: memory::Server {
                ignore_cycles,
                now: NOW,
                wall: Micros(1),
                ..memory::Server::default()
            },
            upgrades: false,
            apart: false,
            last_wait: None,
            waiting: BTreeMap::new(),
        }
    }

    pub(super) fn queues(&self) -> &Queues {
        &self.memory.queues
    }

    pub(super) fn run(&mut self, op: Op) -> Answer {
        let answer = match op {
            Op::Ask { owner, key, write } => self.ask(owner, key, write),
            Op::Several { owner, keys } => self.ask_several(owner, &keys_of(keys)),
            Op::Release { owner, key } => {
                let owner = owner_of(owner);
                let release = Release {
                    owner: owner.as_ref(),
                    how: How::All,
                    token: None,
                };
                // It may hold nothing.
                let _ = self.memory.release(&key_id(key), &release);
                Answer::Done
            }
            Op::Leave { owner } => {
                if let Some(id) = self.waiting.remove(&owner) {
                    self.memory.remove(id).expect("it waits");
                }
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
                let id = key_id(key);
                self.memory.locks.remove(&id);
                self.memory.queues.forget_holders(id.as_ref());
                self.memory.mark(&id);
                Answer::Done
            }
        };
        self.memory.end_turn();
        for ended in self.memory.ended.drain(..) {
            match ended {
                Ended::Decided(it) => self.waiting.remove(&owner_number(&it.waiter.owner)),
                Ended::Deadlock(removed) => panic!("no waiter comes to hold: {removed:?}"),
            };
        }
        answer
    }

    fn holds(&self, owner: usize, key: usize) -> bool {
        let hold = self.memory.hold(&key_id(key), owner_of(owner).as_ref());
        hold.is_some()
    }

    fn is_busy(&self, number: usize, keys: &[usize]) -> bool {
        self.waiting.contains_key(&number) || self.meets_task(number, keys)
    }

    /// Owners of one task are to be apart, and another one of this one's task is at one of the keys.
    fn meets_task(&self, number: usize, keys: &[usize]) -> bool {
        let is_of_task = |other: usize| other != number && task_of(other) == task_of(number);
        let meets = |key: &usize| {
            let holders = self.holders(*key).into_iter().map(|(holder, _)| holder);
            holders.chain(self.queue(*key)).any(is_of_task)
        };
        self.apart && keys.iter().any(meets)
    }

    fn ask(&mut self, owner: usize, key: usize, write: bool) -> Answer {
        let upgrade = self.upgrades && write && self.holders(key).contains(&(owner, false));
        if !upgrade && self.holds(owner, key) || self.is_busy(owner, &[key]) {
            return Answer::Skipped;
        }
        let mode = if write { Mode::Write } else { Mode::Read };
        let waiting = Waiting {
            owner,
            keys: vec![key],
            write,
            several: false,
            upgrade,
        };
        self.request(waiting, mode.into())
    }

    fn ask_several(&mut self, owner: usize, keys: &[usize]) -> Answer {
        let holds = keys.iter().any(|key| self.holds(owner, *key));
        if holds || self.is_busy(owner, keys) {
            return Answer::Skipped;
        }
        let waiting = Waiting {
            owner,
            keys: keys.to_vec(),
            write: true,
            several: true,
            upgrade: false,
        };
        self.request(waiting, Sharing::several(keys.len() as u8))
    }

    /// `waiting`: the request as it waits if it is not granted at once.
    fn request(&mut self, waiting: Waiting, sharing: Sharing) -> Answer {
        let ids: Vec<KeyId> = waiting.keys.iter().map(|key| key_id(*key)).collect();
        let owner = owner_of(waiting.owner);
        let answer = self.memory.ask(&Ask {
            keys: &ids,
            request: Request {
                owner: owner.as_ref(),
                terms: terms(sharing),
            },
            until: Some(Instant::NEVER),
            repeats: None,
        });
        let answer = match answer {
            memory::Answer::Granted(_) => return Answer::Granted,
            memory::Answer::LetPast(_) => Answer::Granted,
            memory::Answer::Deadlock(_) => Answer::Deadlock,
            memory::Answer::Waits { id, is_upgrade, .. } => {
                assert_eq!(is_upgrade, waiting.upgrade);
                self.waiting.insert(waiting.owner, id);
                Answer::Waits
            }
            answer => panic!("{answer:?}"),
        };
        self.last_wait = Some(waiting);
        answer
    }

    /// A pass to this owner would decide a request of its own. Or, if cycles are to be ignored, it might move one of its task to end a cycle.
    fn pass_would_decide_or_move(&self, new_owner: usize, key: usize) -> bool {
        let (id, new) = (key_id(key), owner_of(new_owner));
        let queues = self.queues();
        let first = queues.first_request_of(id.as_ref(), new.as_ref());
        let is_refused = first.is_some_and(|first| queues.keys_of(first).is_some());
        let mut waiting = self.waiting.keys();
        let is_moved = waiting.any(|other| {
            task_of(*other) == task_of(new_owner) && !(is_refused && *other == new_owner)
        });
        !is_refused && first.is_some() || self.memory.ignore_cycles && is_moved
    }

    fn pass(&mut self, owner: usize, new_owner: usize, key: usize) {
        if self.pass_would_decide_or_move(new_owner, key) || self.meets_task(new_owner, &[key]) {
            return;
        }
        let [old, new] = [owner, new_owner].map(owner_of);
        let pass = Pass {
            owner: old.as_ref(),
            new_owner: new.as_ref(),
            lease: terms(Mode::Write.into()).lease,
            token: None,
            client: 0,
        };
        // The one may hold nothing, or the other one something.
        let _ = self.memory.pass(&key_id(key), &pass);
    }

    pub(super) fn holders(&self, key: usize) -> Vec<(usize, bool)> {
        let lock = self.memory.locks.get(&key_id(key));
        let holds = lock.into_iter().flat_map(mortise_core::Lock::holds);
        let mut found: Vec<_> = holds
            .map(|(owner, stake)| (owner_number(&owner), stake.write > 0))
            .collect();
        found.sort_unstable();
        found
    }

    pub(super) fn queue(&self, key: usize) -> Vec<usize> {
        let id = key_id(key);
        let queue = self.queues().get(id.as_ref()).into_iter();
        let waiters = queue.flat_map(|queue| queue.iter());
        waiters.map(|waiter| owner_number(&waiter.owner)).collect()
    }

    /// Checks that no request that is first in all its queues could be granted.
    pub(super) fn assert_settled(&self, op: Op) {
        for (owner, id) in &self.waiting {
            let (key, waiter) = self.queues().waiter(*id).expect("it waits");
            let keys = match self.queues().keys_of(*id) {
                Some(keys) => keys.as_slice().to_vec(),
                None => vec![key.clone()],
            };
            let may_have = keys.iter().map(number).all(|key| {
                let is_first = self.queue(key).first() == Some(owner);
                let write = waiter.terms.mode() == Mode::Write;
                let mut others = self.holders(key).into_iter();
                is_first && others.all(|(holder, writes)| holder == *owner || !writes && !write)
            });
            assert!(!may_have, "{op:?}: owner {owner} could be granted {keys:?}");
        }
    }
}
