//! A task that sends plain commands: its connection, its names, and its records.

use std::thread;
use std::time::Duration;

use mortise_harness::redis::Cmd;
use mortise_harness::{Dice, command};

use super::confirm::{Confirmer, Hold, Unconfirmed};
use super::job::Job;
use super::request::Request;
use super::stop::Stop;
use super::wire::{REPLY, Wire};
use crate::history::{Granted, Log, Mode, Outcome, Way, now};

/// How long a task tries to learn the outcome of a request: by then its lease is over.
const LEAVING: u64 = 20_000;
/// How often a task tries to confirm a grant.
const ATTEMPTS: u64 = 3;
/// How long it pauses in between.
const PAUSE: Duration = Duration::from_millis(20);
pub(super) const MILLI: u64 = 1_000_000;

pub(crate) struct Task<'a> {
    pub(crate) job: &'a Job,
    pub(crate) log: &'a Log,
    pub(crate) wire: Wire,
    pub(super) stop: &'a Stop,
    pub(super) dice: Dice,
    pub(super) name: String,
    pub(super) requests: u64,
    pub(super) confirmer: Option<Confirmer>,
}

impl Task<'_> {
    /// A name that was never used before, not even by an earlier process of this client.
    pub(super) fn fresh(&mut self) -> (String, String) {
        self.requests += 1;
        let name = format!("{}#{}", self.name, self.requests);
        (name.clone(), name)
    }

    pub(super) fn asks(&self, request: &Request, way: Way) {
        let Request {
            ask, owner, key, ..
        } = request;
        self.log.asks(ask, owner, key, way);
    }

    pub(super) fn answer(&self, request: &Request, outcome: Outcome, text: &str) {
        self.log.answer(&request.ask, outcome, text);
    }

    /// A grant for each key, recorded together.
    pub(super) fn granted(&self, request: &Request, token: u64, until: u64) -> Vec<Granted> {
        let first = Granted {
            ask: request.ask.clone(),
            owner: request.owner.clone(),
            key: request.key.clone(),
            mode: request.mode,
            weight: request.weight,
            limit: request.limit,
            token,
            from: now(),
            until,
            together: Vec::new(),
        };
        self.log.granted(&first, &request.more)
    }

    /// The command for a request, without its `WAIT`.
    pub(crate) fn acquire_command(&self, request: &Request) -> Cmd {
        if !request.more.is_empty() {
            let (owner, lease) = (&request.owner, self.job.lease);
            let mut command = command!("LOCK.MACQUIRE", owner, lease, 1 + request.more.len());
            for key in request.keys() {
                command.arg(key);
            }
            return command;
        }
        let name = match request.mode {
            Mode::Read => "LOCK.RLOCK",
            Mode::Write => "LOCK.ACQUIRE",
        };
        let (key, owner, lease) = (&request.key, &request.owner, self.job.lease);
        let mut command = command!(name, key, owner, lease, "HOLDS", request.weight);
        if request.limit > 0 {
            command.arg("LIMIT").arg(request.limit);
        }
        command
    }

    /// Until when the task relies on a grant in which it might believe until `until`. None if it has to be confirmed and is not.
    pub(super) fn relies(&mut self, request: &Request, token: u64, until: u64) -> Option<u64> {
        let Some(confirmer) = &mut self.confirmer else {
            return Some(until);
        };
        let hold = Hold {
            keys: request.keys().map(String::as_str).collect(),
            owner: &request.owner,
            token,
        };
        for _ in 0..ATTEMPTS {
            match confirmer.confirm(&hold) {
                Ok(sent) => {
                    let until = sent + self.job.certain();
                    return (now() < until).then_some(until);
                }
                Err(Unconfirmed::Over) => return None,
                Err(Unconfirmed::Unknown) => thread::sleep(PAUSE),
            }
        }
        None
    }

    /// Sends LEAVE for that name until the server replies.
    pub(crate) fn leave(&mut self, key: &str, owner: &str) {
        let leave = command!("LOCK.LEAVE", key, owner, "FOR", LEAVING);
        let end = now() + LEAVING * MILLI;
        while now() < end {
            if self.wire.call(&leave, REPLY).is_ok() {
                return;
            }
            self.pause(50);
        }
    }

    pub(crate) fn pause(&mut self, ms: u64) {
        thread::sleep(Duration::from_millis(1 + self.dice.roll(ms)));
    }
}
