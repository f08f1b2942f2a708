//! Waiting on a connection.

use std::time::Duration;

use mortise_harness::command;
use mortise_harness::redis::Value;

use super::job::Job;
use super::request::{Reply, Request};
use super::rounds::Waiting;
use super::task::Task;
use super::wire::{REPLY, Trouble};
use crate::history::{Way, now};

pub(crate) struct Blocked;

impl Blocked {
    pub(crate) fn new(_: &Job, _: &str) -> Blocked {
        Blocked
    }
}

impl Waiting for Blocked {
    const WAY: Way = Way::Blocked;

    fn acquire(&mut self, task: &mut Task<'_>, request: &Request) -> Reply {
        let mut command = task.acquire_command(request);
        if let Some(wait) = request.wait {
            command.arg("WAIT").arg(wait);
        }
        let sent = now();
        let limit = REPLY + Duration::from_millis(request.wait.unwrap_or(0));
        match task.wire.call(&command, limit) {
            // A long wait may have used up the lease that counts from the request, so confirm it.
            Ok(Value::Int(token)) => confirm(task, request, token.cast_unsigned(), sent),
            Ok(_) => Reply::Denied,
            Err(Trouble::Refused(line)) => Reply::Refused(line),
            Err(Trouble::Lost) => Reply::Unknown,
        }
    }
}

/// Believes in the lease from when the request was sent, or if little of that is left, from a renewal.
pub(super) fn confirm(task: &mut Task<'_>, request: &Request, token: u64, sent: u64) -> Reply {
    let half = task.job.certain() / 2;
    if now() < sent + half {
        return Reply::Granted(token, sent + task.job.certain());
    }
    let sent = now();
    for key in request.keys() {
        let (owner, lease) = (&request.owner, task.job.lease);
        let renewal = command!("LOCK.RENEW", key, owner, lease, "TOKEN", token);
        match task.wire.call(&renewal, REPLY) {
            Ok(Value::Int(_)) => {}
            // Of several locks, others may still be held.
            Ok(_) if request.more.is_empty() => return Reply::Denied,
            _ => return Reply::Unknown,
        }
    }
    Reply::Granted(token, sent + task.job.certain())
}
