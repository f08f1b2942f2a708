//! Runs a program on the queues and on the model, step by step, and compares every decision.

use std::collections::BTreeSet;

use mortise_core::{AcquireError, Decided, How, Instant, Lock, Micros, Mode, Undo, WaiterId};

use super::compare;
use super::program::{KeySpace, Op, Program};
use super::reference::{self, Decision, Hold, Outcome, Reference};
use super::scenes::{scenes, wait};
use super::server::{Answer, Asked, DBS, KEYS, PER_DB, Patience, Server, key_id, key_number};
use crate::deadlock::graph::check_answer;

#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) server: Server,
    pub(crate) model: Reference,
    /// Keys that the key space has changed and that are not settled yet.
    marked: BTreeSet<usize>,
    /// Those of them whose lock the queues no longer know.
    forgotten: BTreeSet<usize>,
    /// The last grants to waiters, as the server and the model remember them.
    handed: Vec<(usize, Undo, Hold, Option<Hold>)>,
    /// Waiters that have got an answer.
    decided: BTreeSet<u64>,
    clients: u64,
}

pub(crate) fn run(program: &Program) {
    let mut run = Run::default();
    run.server.ignore_cycles = program.ignore_cycles;
    run.server.slice = program.slice.unwrap_or(usize::MAX);
    run.pass(1_000);
    for op in &program.ops {
        run.step(*op);
        run.compare();
    }
    run.step(Op::Grace(false));
    while !run.server.queues.is_empty() {
        run.step(Op::Leave(run.clients as usize));
        run.compare();
    }
}

impl Run {
    pub(crate) fn step(&mut self, op: Op) {
        match op {
            Op::Ask {
                key,
                asked,
                patience,
            } => {
                self.settle(key);
                self.ask(key, asked, patience);
            }
            Op::Release {
                key,
                owner,
                write,
                all,
            } => {
                self.settle(key);
                let mode = if write { Mode::Write } else { Mode::Read };
                let how = if all { How::All } else { How::One(Some(mode)) };
                let released = self.server.release(key, owner, how);
                let left = released.ok().map(|released| released.left);
                assert_eq!(left, self.model.release(key, owner, write, all));
                self.settle(key);
            }
            Op::Renew { key, owner, lease } => {
                self.settle(key);
                let renewed = self.server.renew(key, owner, lease);
                assert_eq!(renewed, self.model.renew(key, owner, lease));
                self.settle(key);
            }
            Op::PassOn {
                key,
                owner,
                new_owner,
                lease,
            } if !self.server.grace => {
                self.settle(key);
                self.clients += 1;
                let passed = (self.server).pass(key, [owner, new_owner], lease, self.clients);
                let token = passed.ok().map(|passed| passed.token.get());
                assert_eq!(token, self.model.pass(key, [owner, new_owner], lease));
                self.settle(key);
            }
            Op::PassOn { .. } => {}
            Op::Revoke { key, owner } => self.revoke(key, owner),
            Op::Pass(ms) => self.pass(ms),
            Op::Timers => self.timers(),
            Op::Leave(nth) => self.leave(nth),
            Op::TakeOver(nth, asked, patience) => self.take_over(nth, asked, patience),
            Op::Undo(nth) => self.undo(nth),
            Op::KeySpace(change) => self.key_space(change),
            Op::Grace(grace) => {
                (self.server.grace, self.model.grace) = (grace, grace);
                if !grace {
                    (0..KEYS).for_each(|key| self.settle(key));
                }
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        self.model.now += ms;
        self.model.wall += ms * 1_000;
        self.server.now = Instant::from_millis(self.model.now);
        self.server.wall = Micros(self.model.wall);
    }

    fn ask(&mut self, key: usize, asked: Asked, patience: Patience) {
        self.clients += 1;
        let asked = Asked {
            client: self.clients,
            ..asked
        };
        let held = self.model.hold(key, asked.owner);
        let expected = self.model.ask(key, &asked);
        let before = scenes(&self.model, &self.forgotten, key);
        let answer = self.server.ask(key, asked, patience);
        match (expected, answer) {
            (Outcome::Granted(kind, hold), Answer::Granted(grant)) => {
                assert_eq!(compare::kind_of(grant), (kind, hold.token));
                match held.is_some_and(|held| held.read > hold.read) {
                    // The request has freed permits for others.
                    true => self.settle(key),
                    false => self.is_settled(key),
                }
            }
            (Outcome::CountTooHigh, Answer::Refused(error)) => {
                assert_eq!(error, AcquireError::CountTooHigh);
            }
            (Outcome::NoRoom, Answer::Refused(error)) => {
                assert_eq!(error, AcquireError::NoRoom);
            }
            (Outcome::Revoked, Answer::Refused(error)) => {
                assert_eq!(error, AcquireError::Revoked);
            }
            (Outcome::Busy { .. }, Answer::Denied) => {
                assert!(matches!(patience, Patience::None));
            }
            (Outcome::Busy { upgrade }, Answer::Deadlock(keys)) => {
                let wait = wait(key, asked, upgrade, false);
                check_answer(&before, wait, Some(&keys));
            }
            (
                Outcome::Busy { upgrade },
                Answer::Waits {
                    id,
                    upgrade: ahead,
                    cycle,
                },
            ) => {
                assert_eq!(ahead, upgrade, "stands ahead of the line");
                check_answer(&before, wait(key, asked, upgrade, false), cycle.as_deref());
                let limit = match patience {
                    Patience::Millis(ms) => Some(self.model.now + ms),
                    _ => None,
                };
                let waiter = reference::Waiter {
                    id: id.0,
                    asked,
                    upgrade,
                    since: self.model.now,
                    limit,
                };
                self.model.push(key, waiter);
                self.is_settled(key);
            }
            (expected, answer) => panic!("expected {expected:?}, got {answer:?}"),
        }
    }

    /// Settles `key` on both sides and compares the results.
    fn settle(&mut self, key: usize) {
        self.marked.remove(&key);
        self.forgotten.remove(&key);
        let line: Vec<u64> = self.model.keys[key].queue.iter().map(|w| w.id).collect();
        let expected = self.model.settle(key);
        let settled = self.server.settle(key);
        assert_eq!(
            settled.decided.len(),
            expected.decided.len(),
            "{expected:?}"
        );
        for (decided, decision) in settled.decided.iter().zip(&expected.decided) {
            compare::decision(decided, decision);
            self.remember(key, decided, decision);
        }
        let upgrading: Vec<u64> = settled.upgrading.iter().map(|id| id.0).collect();
        assert_eq!(upgrading, expected.upgrading);
        compare::nobody_was_overtaken(&line, &settled.decided);
        self.compare_liveness(key);
        for id in expected.upgrading {
            self.run_due(key, id);
        }
    }

    fn remember(&mut self, key: usize, decided: &Decided, decision: &Decision) {
        assert!(self.decided.insert(decided.waiter.id.0), "decided twice");
        if let Some(undo) = Undo::of(decided)
            && let reference::Verdict::Granted { hold, before, .. } = decision.verdict
        {
            self.handed.push((key, undo, hold, before));
        }
    }

    /// A waiter has become an upgrade, which may close a cycle.
    fn run_due(&mut self, key: usize, id: u64) {
        let mut queue = self.model.keys[key].queue.iter();
        let Some(waiter) = queue.find(|waiter| waiter.id == id).copied() else {
            return;
        };
        let keys = self.server.cycle_of(WaiterId(id));
        check_answer(
            &scenes(&self.model, &self.forgotten, key),
            wait(key, waiter.asked, true, true),
            keys.as_deref(),
        );
        if keys.is_some() && !self.server.ignore_cycles {
            self.take_out(id);
        }
    }

    /// Ends waits and leases that are over, and settles marked keys. Then nothing is left to do.
    fn timers(&mut self) {
        while let Some(id) = self.server.queues.timed_out(self.server.now) {
            self.compare();
            self.take_out(id.0);
        }
        while let Some(key) = self.due() {
            self.settle(key);
        }
        for key in std::mem::take(&mut self.marked) {
            self.settle(key);
        }
        (0..KEYS).for_each(|key| self.is_settled(key));
    }

    /// Checks that settling `key` changes nothing.
    fn is_settled(&mut self, key: usize) {
        let settled = self.model.settle(key);
        assert!(settled.decided.is_empty() && settled.upgrading.is_empty());
        self.settle(key);
    }

    /// The first due key, reported once.
    fn due(&mut self) -> Option<usize> {
        let now = self.model.now;
        let deadlines = self.model.keys.iter();
        let first = deadlines
            .filter_map(|it| it.deadline.filter(|at| *at <= now))
            .min();
        let at = self.server.now;
        let due = self.server.queues.due(at);
        let due = due.map(|id| key_number(&id));
        assert_eq!(due.and_then(|key| self.model.keys[key].deadline), first);
        self.model.keys[due?].deadline = None;
        due
    }

    fn leave(&mut self, nth: usize) {
        let queues = self.model.keys.iter().flat_map(|key| &key.queue);
        let ids: Vec<u64> = queues.map(|waiter| waiter.id).collect();
        if let Some(id) = ids.get(nth % ids.len().max(1)) {
            self.take_out(*id);
        }
    }

    /// A waiter repeats its request, and keeps its place.
    fn take_over(&mut self, nth: usize, asked: Asked, patience: Patience) {
        let limit = match patience {
            Patience::Millis(ms) => Some(self.model.now + ms),
            _ => None,
        };
        let queues = self.model.keys.iter_mut().enumerate();
        let waiters = queues.flat_map(|(key, it)| it.queue.iter_mut().map(move |w| (key, w)));
        let mut waiters: Vec<(usize, &mut reference::Waiter)> = waiters.collect();
        let len = waiters.len().max(1);
        let Some((key, waiter)) = waiters.get_mut(nth % len) else {
            return;
        };
        let (key, before) = (*key, waiter.asked.terms());
        waiter.limit = limit;
        waiter.asked = Asked {
            lease: asked.lease,
            holds: asked.holds,
            limit: asked.limit.filter(|_| !waiter.asked.write),
            fence: asked.fence,
            ..waiter.asked
        };
        let until = limit.map_or(Instant::NEVER, Instant::from_millis);
        let (id, terms) = (WaiterId(waiter.id), waiter.asked.terms());
        let changed = self.server.queues.take_over(id, terms, until);
        assert_eq!(changed, terms != before);
        self.settle(key);
    }

    /// Refuses the owner's requests before any grant.
    fn revoke(&mut self, key: usize, owner: usize) {
        self.settle(key);
        let refused = self.server.revoke(key, owner);
        assert_eq!(refused, self.model.revoke(key, owner));
        for id in refused.into_iter().flatten() {
            assert!(self.decided.insert(id), "decided twice");
            self.model.remove(key, id).expect("the model has it");
        }
        self.settle(key);
    }

    /// Removes a waiter with its own answer, and settles its key.
    fn take_out(&mut self, id: u64) {
        assert!(self.decided.insert(id), "decided twice");
        let removed = self.server.remove(WaiterId(id)).expect("it waits");
        let waiter = removed.waiter;
        let key = key_number(removed.keys.first());
        let expected = self.model.remove(key, id).expect("the model has it");
        compare::waiter(&waiter, &expected);
        assert!(self.server.queues.remove(WaiterId(id)).is_none());
        self.settle(key);
    }

    fn undo(&mut self, nth: usize) {
        if nth >= self.handed.len() {
            return;
        }
        let (key, undo, granted, before) = self.handed.remove(self.handed.len() - 1 - nth);
        self.settle(key);
        let longer = self.deadline(key, granted.owner);
        let undone = self.server.undo(key, &undo);
        assert_eq!(undone, self.model.undo(key, granted, before));
        if undone {
            self.accept_lease(key, granted.owner, longer);
        }
        self.settle(key);
    }

    fn deadline(&self, key: usize, holder: usize) -> Option<u64> {
        let stake = self.server.hold_of(key, holder)?;
        Some(stake.deadline.as_millis())
    }

    /// The contract leaves open whether the longer lease stays when a grant is undone.
    fn accept_lease(&mut self, key: usize, holder: usize, longer: Option<u64>) {
        let Some(deadline) = self.deadline(key, holder) else {
            return;
        };
        let mut holds = self.model.keys[key].holds.iter_mut();
        let hold = holds.find(|hold| hold.owner == holder);
        let hold = hold.expect("it held before");
        assert!(
            hold.ends <= deadline && Some(deadline) <= longer,
            "{hold:?}"
        );
        hold.ends = deadline;
    }

    fn key_space(&mut self, change: KeySpace) {
        match change {
            KeySpace::Delete(key) => self.replace(key, None, Vec::new()),
            KeySpace::Copy { from, to } | KeySpace::Rename { from, to } => {
                let Some(lock) = self.server.locks.get(&key_id(from)).cloned() else {
                    return;
                };
                if from == to {
                    return;
                }
                let holds = self.model.keys[from].holds.clone();
                self.replace(to, Some(lock), holds);
                if let KeySpace::Rename { .. } = change {
                    self.replace(from, None, Vec::new());
                }
            }
            KeySpace::SwapDb => {
                for (a, b) in (0..PER_DB).map(|name| (name, name + PER_DB)) {
                    let lock = self.server.locks.get(&key_id(a)).cloned();
                    let holds = self.model.keys[a].holds.clone();
                    let other = self.server.locks.get(&key_id(b)).cloned();
                    self.replace(a, other, self.model.keys[b].holds.clone());
                    self.replace(b, lock, holds);
                }
            }
            KeySpace::Flush(db) => {
                assert!(db < DBS);
                for key in db * PER_DB..(db + 1) * PER_DB {
                    self.replace(key, None, Vec::new());
                }
            }
        }
    }

    fn replace(&mut self, key: usize, lock: Option<Lock>, holds: Vec<Hold>) {
        self.server.replace(key, lock);
        self.model.keys[key].holds = holds;
        self.marked.insert(key);
        self.forgotten.insert(key);
    }

    fn compare_liveness(&self, key: usize) {
        let Some(head) = self.model.keys[key].queue.first() else {
            return;
        };
        let admits = self.model.may_come_in(key, &head.asked);
        assert!(
            self.server.grace || !admits,
            "the head could be granted: {head:?}"
        );
    }

    fn compare(&self) {
        compare::states(&self.server, &self.model);
        for id in &self.decided {
            assert!(self.server.queues.waiter(WaiterId(*id)).is_none());
        }
    }
}
