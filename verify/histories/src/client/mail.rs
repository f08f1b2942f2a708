//! Waiting by mail: the request names a box, and the task collects its letters.

use std::collections::BTreeMap;
use std::time::Duration;

use mortise_harness::redis::Value;
use mortise_harness::{array, as_map, command, int, text};

use super::blocked::confirm;
use super::job::Job;
use super::request::{Reply, Request};
use super::rounds::Waiting;
use super::task::Task;
use super::wire::{REPLY, Trouble, Wire};
use crate::history::{Record, Way, now};

/// How long one LOCK.MAIL waits for a letter, in milliseconds.
const LISTEN: u64 = 500;
const MILLI: u64 = 1_000_000;

pub(crate) struct Mail {
    name: String,
    wire: Wire,
    boxes: BTreeMap<String, Seen>,
}

/// The state of a box: how far the task has read it.
#[derive(Default)]
struct Seen {
    since: i64,
    number: i64,
}

/// When the request was sent, and until when the task waited for its letter at least.
#[derive(Clone, Copy)]
struct Times {
    asked: u64,
    heard: u64,
}

/// A letter about a request.
struct Letter {
    owner: String,
    key: String,
    result: String,
    error: String,
    token: u64,
    age: u64,
}

impl Mail {
    pub(crate) fn new(job: &Job, task: &str) -> Mail {
        Mail {
            name: format!("box:{task}"),
            wire: Wire::new(job.place.clone()),
            boxes: BTreeMap::new(),
        }
    }

    /// In a cluster a box is on the node of its request: one for each key.
    fn name_at(&self, key: &str) -> String {
        format!("{}:{{{key}}}", self.name)
    }

    fn ask(&mut self, task: &mut Task<'_>, request: &Request, left: u64) -> Result<Value, Trouble> {
        let mut command = task.acquire_command(request);
        command.arg("WAIT").arg(left.max(1));
        command.arg("MAIL").arg(self.name_at(&request.key));
        let reply = task.wire.call(&command, REPLY)?;
        if let Value::Array(words) = &reply {
            self.see(&request.key, int(&words[1]));
            let ask = request.ask.clone();
            task.log.write(&Record::Queued { ask, at: now() });
        }
        Ok(reply)
    }

    /// Returns whether this is a new box.
    fn see(&mut self, key: &str, since: i64) -> bool {
        let seen = self.boxes.entry(key.to_owned()).or_default();
        let is_new = since != seen.since;
        if is_new {
            *seen = Seen { since, number: 0 };
        }
        is_new
    }

    /// Calls LOCK.MAIL. Returns the box's number, how long the call waited, and the letters.
    fn listen(&mut self, key: &str) -> Result<(i64, u64, Vec<Letter>), Trouble> {
        let name = self.name_at(key);
        let seen = self.boxes.entry(key.to_owned()).or_default();
        let (since, number) = (seen.since, seen.number);
        let mail = command!("LOCK.MAIL {name} AFTER {since} {number} WAIT {LISTEN}");
        let limit = REPLY + Duration::from_millis(LISTEN);
        let reply = self.wire.call(&mail, limit)?;
        let reply = array(&reply);
        let mut letters = Vec::new();
        for letter in array(&reply[2]) {
            let map = as_map(letter);
            let number = |name: &str| map.get(name).map_or(0, |it| int(it).cast_unsigned());
            let word = |name: &str| map.get(name).map_or(String::new(), text);
            seen.number = seen.number.max(int(&map["number"]));
            letters.push(Letter {
                owner: word("owner"),
                key: word("key"),
                result: word("result"),
                error: word("error"),
                token: number("token"),
                age: number("age"),
            });
        }
        Ok((int(&reply[0]), int(&reply[1]).cast_unsigned(), letters))
    }

    /// The outcome of the request in the letter, unless the letter is about an earlier one.
    fn read(task: &mut Task<'_>, request: &Request, letter: Letter, times: Times) -> Option<Reply> {
        if letter.owner != request.owner {
            if letter.result == "granted" {
                task.leave(&letter.key, &letter.owner);
            }
            return None;
        }
        Some(match &*letter.result {
            "granted" => {
                let begun = times.heard.saturating_sub(letter.age * MILLI);
                let begun = begun.max(times.asked);
                confirm(task, request, letter.token, begun)
            }
            "denied" => Reply::Denied,
            _ => Reply::Refused(letter.error),
        })
    }
}

impl Waiting for Mail {
    const WAY: Way = Way::Mail;

    fn acquire(&mut self, task: &mut Task<'_>, request: &Request) -> Reply {
        let Some(wait) = request.wait else {
            return super::blocked::Blocked.acquire(task, request);
        };
        let asked = now();
        let end = asked + (wait + 2_000) * MILLI;
        match self.ask(task, request, wait) {
            Ok(Value::Int(token)) => return confirm(task, request, token.cast_unsigned(), asked),
            Ok(Value::Array(_)) => {}
            Ok(_) => return Reply::Denied,
            Err(Trouble::Refused(line)) => return Reply::Refused(line),
            Err(Trouble::Lost) => return Reply::Unknown,
        }
        while now() < end {
            let sent = now();
            let Ok((since, waited, letters)) = self.listen(&request.key) else {
                task.pause(50);
                continue;
            };
            if self.see(&request.key, since) {
                // The box was closed, and this request has lost its place.
                let (ask, at) = (request.ask.clone(), u64::MAX);
                task.log.write(&Record::Queued { ask, at });
                let left = (end.saturating_sub(now()) / MILLI).saturating_sub(1_500);
                let again = now();
                match self.ask(task, request, left) {
                    Ok(Value::Int(token)) => {
                        return confirm(task, request, token.cast_unsigned(), again);
                    }
                    Ok(Value::Array(_)) => continue,
                    Ok(_) => return Reply::Denied,
                    Err(_) => return Reply::Unknown,
                }
            }
            for letter in letters {
                let heard = sent + waited * MILLI;
                let times = Times { asked, heard };
                if let Some(reply) = Self::read(task, request, letter, times) {
                    return reply;
                }
            }
        }
        Reply::Unknown
    }
}
