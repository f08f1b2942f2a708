//! What a server does around the queues for requests of one key and of several, as briefly as possible.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use mortise_core::{
    AcquireError, Busy, Db, How, Instant, KeyId, Lease, Live, Lock, Micros, Mode, Owner, OwnerRef,
    Pass, PendingRequest, Queues, Release, Request, Sharing, Terms, TokenClock, Turn, WaiterId,
};

use super::{Op, keys_of};
use crate::pending::{for_one, for_several};

pub(super) const KEYS: usize = 4;
pub(super) const OWNERS: usize = 12;
/// Owners without a task.
pub(super) const ALONE: Range<usize> = 0..5;
/// Two owners without a task, two tasks of two names each, and one of three.
pub(super) const OF_TASKS: Range<usize> = 3..12;
pub(super) const NOW: Instant = Instant::from_millis(1_000);
const MOST: usize = 64;

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

#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) queues: Queues,
    pub(super) ignore_cycles: bool,
    /// Readers may ask for write.
    pub(super) upgrades: bool,
    /// Owners of one task do not meet at a key.
    pub(super) apart: bool,
    pub(super) last_wait: Option<Waiting>,
    /// The last request was moved to the head, and its lock admits it.
    let_past: bool,
    locks: BTreeMap<usize, Lock>,
    tokens: TokenClock,
    dirty: BTreeSet<KeyId>,
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
    OwnerRef::new(name.as_bytes()).expect("short").to_owner()
}

pub(super) fn owner_number(owner: &Owner) -> usize {
    (0..OWNERS)
        .find(|number| owner_of(*number) == *owner)
        .expect("an owner of the tests")
}

pub(super) fn terms(sharing: Sharing) -> Terms {
    Terms {
        sharing,
        lease: Lease::from_millis(60_000).expect("more than 0"),
        holds: None,
        fence: None,
        token: None,
        client: 0,
    }
}

impl Server {
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
                let _ = self.with(key, |live| live.release(&release));
                self.dirty.insert(key_id(key));
                Answer::Done
            }
            Op::Leave { owner } => {
                if let Some(id) = self.waiting.remove(&owner) {
                    let removed = self.queues.remove(id).expect("it waits");
                    self.dirty.extend(removed.keys.as_slice().iter().cloned());
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
                self.locks.remove(&key);
                self.queues.forget_holders(key_id(key).as_ref());
                self.dirty.insert(key_id(key));
                Answer::Done
            }
        };
        self.end_turn();
        answer
    }

    fn with<T>(&mut self, key: usize, act: impl FnOnce(&mut Live<'_>) -> T) -> T {
        act(&mut self.locks.entry(key).or_default().at(NOW, |_, _| {}))
    }

    fn holds(&self, owner: usize, key: usize) -> bool {
        let lock = self.locks.get(&key);
        lock.is_some_and(|lock| lock.hold(owner_of(owner).as_ref()).is_some())
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

    fn ask(&mut self, number: usize, key: usize, write: bool) -> Answer {
        let upgrades = self.upgrades && write && self.holders(key).contains(&(number, false));
        if !upgrades && self.holds(number, key) || self.is_busy(number, &[key]) {
            return Answer::Skipped;
        }
        let (owner, id) = (owner_of(number), key_id(key));
        let terms = terms(if write { Mode::Write } else { Mode::Read }.into());
        let request = Request {
            owner: owner.as_ref(),
            terms,
        };
        let turn = match self.queues.get(id.as_ref()) {
            None => Turn::First,
            Some(_) => Turn::Behind,
        };
        let busy = match self.acquire(key, &request, turn) {
            Ok(()) => {
                self.dirty.insert(id);
                return Answer::Granted;
            }
            Err(AcquireError::Busy(busy)) => busy,
            Err(other) => panic!("{other:?}"),
        };
        let held = self.with(key, |live| live.lock().observe());
        let pending = PendingRequest {
            busy,
            ..for_one(&id, owner.clone(), terms, held, NOW)
        };
        let waiting = Waiting {
            owner: number,
            keys: vec![key],
            write,
            several: false,
            upgrade: pending.busy == Busy::Upgrade,
        };
        let answer = self.wait(&pending, waiting);
        let waiter = self.waiting.get(&number).copied();
        if let Some(waiter) = waiter.filter(|_| self.let_past) {
            self.queues.remove(waiter);
            if self.acquire(key, &request, Turn::First).is_ok() {
                // A command does this before it closes the key.
                self.waiting.remove(&number);
                self.dirty.insert(id);
                return Answer::Granted;
            }
            panic!("a lock that is not free lets nobody past");
        }
        answer
    }

    /// The request waits, if it closes no cycle.
    fn wait(&mut self, pending: &PendingRequest, waiting: Waiting) -> Answer {
        let number = waiting.owner;
        self.let_past = false;
        let id = if self.ignore_cycles {
            self.queues.push(pending)
        } else {
            self.check_withdrawal(pending);
            self.last_wait = Some(waiting);
            let Ok(enqueued) = self.queues.enqueue(pending) else {
                return Answer::Deadlock;
            };
            self.let_past = enqueued.is_first && self.is_free(pending);
            self.dirty.extend(enqueued.moved);
            enqueued.id
        };
        self.waiting.insert(number, id);
        Answer::Waits
    }

    /// Whether the lock of a request for one key admits it.
    fn is_free(&mut self, pending: &PendingRequest) -> bool {
        let [key] = &pending.keys[..] else {
            return false;
        };
        let request = Request {
            owner: pending.owner.as_ref(),
            terms: pending.terms,
        };
        self.with(number(&key.key), |live| live.admits(&request))
    }

    fn acquire(
        &mut self,
        key: usize,
        request: &Request<'_>,
        turn: Turn,
    ) -> Result<(), AcquireError> {
        let mut live = self.locks.entry(key).or_default().at(NOW, |_, _| {});
        let granted = live.acquire(request, turn, &mut self.tokens, Micros(1));
        granted.map(|_| ())
    }

    fn ask_several(&mut self, number: usize, keys: &[usize]) -> Answer {
        let holds = keys.iter().any(|key| self.holds(number, *key));
        if holds || self.is_busy(number, keys) {
            return Answer::Skipped;
        }
        let owner = owner_of(number);
        let terms = terms(Sharing::several(keys.len() as u8));
        let request = Request {
            owner: owner.as_ref(),
            terms,
        };
        let ids: Vec<_> = keys.iter().map(|key| key_id(*key)).collect();
        let is_free = |key: &usize| {
            let is_empty = self.queues.get(key_id(*key).as_ref()).is_none();
            is_empty && self.with(*key, |live| live.admits(&request))
        };
        if keys.iter().all(is_free) {
            let token = self.tokens.next(Micros(1), None).expect("a token");
            for key in keys {
                self.with(*key, |live| live.take(&request, token)).unwrap();
            }
            return Answer::Granted;
        }
        let held: Vec<Lock> = (keys.iter())
            .map(|key| self.with(*key, |live| live.lock().observe()))
            .collect();
        let pending = for_several(ids.into_iter().zip(held), owner, terms, NOW);
        let waiting = Waiting {
            owner: number,
            keys: keys.to_vec(),
            write: true,
            several: true,
            upgrade: false,
        };
        self.wait(&pending, waiting)
    }

    /// A request that is refused, or does not wait after all, has moved nobody.
    fn check_withdrawal(&mut self, pending: &PendingRequest) {
        let all = |server: &Self| (0..KEYS).map(|key| server.queue(key)).collect::<Vec<_>>();
        let before = all(self);
        if let Ok(enqueued) = self.queues.enqueue(pending) {
            self.queues.withdraw(enqueued);
        }
        assert_eq!(all(self), before, "requests have moved");
    }

    /// A pass to this owner would decide a request of its own. Or, if cycles are to be ignored, it might move one of its task to end a cycle.
    fn pass_would_decide_or_move(&self, new_owner: usize, key: usize) -> bool {
        let (id, new) = (key_id(key), owner_of(new_owner));
        let first = self.queues.first_request_of(id.as_ref(), new.as_ref());
        let is_refused = first.is_some_and(|first| self.queues.keys_of(first).is_some());
        let mut waiting = self.waiting.keys();
        let is_moved = waiting.any(|other| {
            task_of(*other) == task_of(new_owner) && !(is_refused && *other == new_owner)
        });
        let requests = self.queues.requests_of(id.as_ref(), new.as_ref());
        !is_refused && !requests.is_empty() || self.ignore_cycles && is_moved
    }

    fn pass(&mut self, owner: usize, new_owner: usize, key: usize) {
        let id = key_id(key);
        let (old, new) = (owner_of(owner), owner_of(new_owner));
        if self.pass_would_decide_or_move(new_owner, key) || self.meets_task(new_owner, &[key]) {
            return;
        }
        let pass = Pass {
            owner: old.as_ref(),
            new_owner: new.as_ref(),
            lease: Lease::from_millis(60_000).expect("more than 0"),
            token: None,
            client: 0,
        };
        let mut live = self.locks.entry(key).or_default().at(NOW, |_, _| {});
        if live.pass(&pass, &mut self.tokens, Micros(1)).is_ok() {
            self.queues.came_to_hold(id.as_ref(), pass.new_owner);
            self.dirty.insert(id);
        }
    }

    /// Settles marked keys, and grants the requests that are due.
    fn end_turn(&mut self) {
        loop {
            let any_due = self.queues.any_due();
            if let Some(key) = self.dirty.pop_first() {
                self.settle(&key);
            } else if let Some(id) = self.queues.next_due() {
                assert!(any_due);
                self.grant_several(id);
            } else {
                assert!(!any_due);
                return;
            }
        }
    }

    fn settle(&mut self, id: &KeyId) {
        let lock = self.locks.entry(number(id)).or_default();
        let mut live = lock.at(NOW, |_, _| {});
        let (queues, tokens) = (&mut self.queues, &mut self.tokens);
        let settled = queues.settle(id.as_ref(), &mut live, tokens, Micros(1), MOST);
        assert!(!settled.more);
        self.dirty.extend(settled.left);
        for decided in settled.decided {
            self.waiting.remove(&owner_number(&decided.waiter.owner));
        }
    }

    fn grant_several(&mut self, id: WaiterId) {
        let keys = self.queues.keys_of(id).expect("it waits");
        let token = self.tokens.next(Micros(1), None).expect("a token");
        let owner = owner_number(&self.queues.waiter(id).expect("it waits").1.owner);
        for key in keys.as_slice() {
            let live = self.locks.entry(number(key)).or_default();
            let live = live.at(NOW, |_, _| {});
            if !self.queues.is_grantable(key.as_ref(), id, &live) {
                return;
            }
        }
        for key in keys.as_slice().iter().rev() {
            let lock = self.locks.entry(number(key)).or_default();
            let mut live = lock.at(NOW, |_, _| {});
            let granted = (self.queues).grant_last_key(key.as_ref(), id, &mut live, token);
            assert_eq!(granted.expect("all are ready").token, token);
            self.dirty.insert(key.clone());
        }
        self.waiting.remove(&owner);
    }

    pub(super) fn holders(&self, key: usize) -> Vec<(usize, bool)> {
        let holds = self.locks.get(&key).into_iter().flat_map(Lock::holds);
        let mut found: Vec<_> = holds
            .map(|(owner, stake)| (owner_number(&owner), stake.write > 0))
            .collect();
        found.sort_unstable();
        found
    }

    pub(super) fn queue(&self, key: usize) -> Vec<usize> {
        let id = key_id(key);
        let queue = self.queues.get(id.as_ref()).into_iter();
        let waiters = queue.flat_map(|queue| queue.iter());
        waiters.map(|waiter| owner_number(&waiter.owner)).collect()
    }

    /// Checks that no request that is first in all its queues could be granted.
    pub(super) fn assert_settled(&self, op: Op) {
        for (owner, id) in &self.waiting {
            let waiter = self.queues.waiter(*id).expect("it waits").1;
            let keys = match self.queues.keys_of(*id) {
                Some(keys) => keys.as_slice().to_vec(),
                None => vec![self.queues.waiter(*id).expect("it waits").0.clone()],
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
