//! What a task does while it is inside: it writes, renews, releases, leaves, passes on, or never releases.

use std::thread;
use std::time::Duration;

use mortise_harness::redis::Value;
use mortise_harness::{command, int, is_nil};

use super::confirm::{Hold, Unconfirmed};
use super::job::Job;
use super::request::Request;
use super::task::{MILLI, Task};
use super::wire::{REPLY, Trouble};
use crate::history::{Granted, Outcome, Way, now};

impl Task<'_> {
    /// Stays inside for a while, and leaves in one of several ways.
    pub(super) fn work(&mut self, request: &Request, grant: &Granted) {
        let lease = self.job.lease;
        let (stay, renews) = match self.dice.roll(60) {
            0..48 if self.job.lingers => (self.dice.roll(lease), true),
            0..48 => (self.dice.roll(10), true),
            48..57 => (self.dice.roll(lease / 8), true),
            57 => (lease + self.dice.roll(lease / 2), true),
            // It ignores its clock, and writes after the end of its lease.
            58 => (lease + self.dice.roll(lease / 2), false),
            _ => (lease / 2, true),
        };
        self.write(grant);
        let valid = self.stay(grant, now() + stay * MILLI, renews);
        self.log.left(grant);
        if !renews {
            self.write(grant);
        }
        match self.dice.roll(40) {
            0..2 if valid => self.pass(request, grant),
            2..4 => self.leave(&grant.key, &grant.owner),
            // It never releases. The lease ends by itself.
            4 => {}
            _ => self.release(grant),
        }
    }

    /// Returns whether the belief has lasted until the end.
    fn stay(&mut self, grant: &Granted, end: u64, renews: bool) -> bool {
        let mut until = grant.until;
        let third = self.job.lease * MILLI / 3;
        let mut next = grant.from + third;
        while now() < end {
            let wake = if renews { next.min(until) } else { end }.min(end);
            thread::sleep(Duration::from_nanos(wake.saturating_sub(now())));
            if renews && now() >= until {
                return false;
            }
            if !renews || now() < next {
                continue;
            }
            let sent = now();
            next = sent + third;
            match self.renew(grant, until) {
                Ok(at) if now() < until => {
                    until = until.max(at + self.job.certain());
                    self.log.kept(grant, until);
                    self.write(grant);
                }
                Err(Unconfirmed::Unknown) => next = sent + third / 10,
                _ => return false,
            }
        }
        now() < until
    }

    /// Renews the hold, and confirms that if this client confirms. Returns when the renewal was sent.
    fn renew(&mut self, grant: &Granted, until: u64) -> Result<u64, Unconfirmed> {
        if let Some(confirmer) = &mut self.confirmer {
            return confirmer.confirm(&Hold {
                keys: vec![&grant.key],
                owner: &grant.owner,
                token: grant.token,
            });
        }
        let sent = now();
        let (key, owner, token, lease) = (&grant.key, &grant.owner, grant.token, self.job.lease);
        let renewal = command!("LOCK.RENEW {key} {owner} {lease} TOKEN {token}");
        let limit = Duration::from_nanos(until.saturating_sub(sent));
        match self.wire.call(&renewal, limit) {
            Ok(Value::Int(_)) => Ok(sent),
            Ok(_) => Err(Unconfirmed::Over),
            Err(_) => Err(Unconfirmed::Unknown),
        }
    }

    /// Writes the data that the lock protects.
    fn write(&mut self, grant: &Granted) {
        if self.dice.roll(3) == 0 {
            return;
        }
        let line = grant.line();
        let list = Job::list(&grant.key);
        let (key, owner, token) = (&grant.key, &grant.owner, grant.token);
        let write = match self.job.guards {
            true => command!("LOCK.GUARD {key} {owner} {token} RPUSH {list} {line}"),
            false => command!("RPUSH {list} {line}"),
        };
        let sent = now();
        let done = match self.wire.call(&write, REPLY) {
            Ok(_) => Some(true),
            Err(Trouble::Refused(_)) => Some(false),
            Err(Trouble::Lost) => None,
        };
        self.log.wrote(grant, sent, done);
    }

    fn release(&mut self, grant: &Granted) {
        let (key, owner, token) = (&grant.key, &grant.owner, grant.token);
        let release = command!("LOCK.RELEASE {key} {owner} ALL TOKEN {token}");
        for _ in 0..20 {
            match self.wire.call(&release, REPLY) {
                Ok(left) => {
                    if !is_nil(&left) && int(&left) == 0 {
                        self.log.released(grant);
                    }
                    return;
                }
                Err(Trouble::Refused(_)) => self.pause(100),
                Err(Trouble::Lost) => return self.leave(&grant.key, &grant.owner),
            }
        }
    }

    /// Passes the lock on. Nobody believes in the old hold from here on.
    fn pass(&mut self, request: &Request, grant: &Granted) {
        let (ask, owner) = self.fresh();
        let next = Request {
            ask,
            owner,
            wait: None,
            ..request.clone()
        };
        self.asks(&next, Way::Pass);
        let sent = now();
        let (key, from, to, lease) = (&grant.key, &grant.owner, &next.owner, self.job.lease);
        let token = grant.token;
        let pass = command!("LOCK.PASS {key} {from} {to} {lease} TOKEN {token}");
        match self.wire.call(&pass, REPLY) {
            Ok(Value::Int(token)) => {
                let token = token.cast_unsigned();
                let Some(until) = self.relies(&next, token, sent + self.job.certain()) else {
                    self.answer(&next, Outcome::Unknown, "");
                    return self.leave(&next.key, &next.owner);
                };
                let taken = self.granted(&next, token, until).remove(0);
                self.answer(&next, Outcome::Granted, "");
                self.write(&taken);
                let stay = self.dice.roll(20);
                self.stay(&taken, now() + stay * MILLI, true);
                self.log.left(&taken);
                self.release(&taken);
            }
            Ok(_) => self.answer(&next, Outcome::Denied, ""),
            Err(Trouble::Refused(text)) => {
                self.answer(&next, Outcome::Refused, &text);
                self.release(grant);
            }
            Err(Trouble::Lost) => {
                self.answer(&next, Outcome::Unknown, "");
                self.leave(&grant.key, &grant.owner);
                self.leave(&next.key, &next.owner);
            }
        }
    }

    /// Stays inside several locks for a short while.
    pub(super) fn work_together(&mut self, grants: &[Granted]) {
        for grant in grants {
            self.write(grant);
        }
        let stay = self.dice.roll(self.job.lease / 8);
        thread::sleep(Duration::from_millis(stay));
        for grant in grants {
            self.log.left(grant);
        }
        // Sometimes it never releases one, whose lease ends by itself.
        let forgets = self.dice.roll(10) == 0;
        for grant in &grants[usize::from(forgets)..] {
            self.release(grant);
        }
    }
}
