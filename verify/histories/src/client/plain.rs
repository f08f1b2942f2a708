//! What most people use: `SET key owner NX PX lease` and a compare-and-delete script. On several servers this is Redlock as
//! documented: a majority, within the lease, less a drift.

use std::time::Duration;

use mortise_harness::command;
use mortise_harness::redis::Value;

use super::job::{Job, Place};
use super::other::{Other, Taken};
use super::wire::Wire;
use crate::history::now;

const RELEASE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const REPLY: Duration = Duration::from_millis(200);

pub(crate) struct Plain {
    wires: Vec<Wire>,
    lease: u64,
    certain: u64,
}

pub(crate) struct Held {
    key: String,
    owner: String,
}

impl Other for Plain {
    type Held = Held;

    fn connect(job: &Job) -> Plain {
        let places = match &job.place {
            Place::Quorum(ports) => ports.iter().map(|port| Place::One(*port)).collect(),
            other => vec![other.clone()],
        };
        Plain {
            wires: places.into_iter().map(Wire::new).collect(),
            lease: job.lease,
            certain: job.certain(),
        }
    }

    fn take(&mut self, key: &str, owner: &str) -> Option<Taken<Held>> {
        let until = now() + self.certain;
        let set = command!("SET", key, owner, "NX", "PX", self.lease);
        let replies = self.wires.iter_mut().map(|wire| wire.call(&set, REPLY));
        let granted = replies
            .filter(|reply| matches!(reply, Ok(Value::Okay)))
            .count();
        let held = Held {
            key: key.to_owned(),
            owner: owner.to_owned(),
        };
        if granted > self.wires.len() / 2 && now() < until {
            return Some(Taken { held, until });
        }
        self.release(held);
        None
    }

    fn release(&mut self, held: Held) {
        let release = command!("EVAL", RELEASE, 1, &held.key, &held.owner);
        for wire in &mut self.wires {
            let _ = wire.call(&release, REPLY);
        }
    }
}
