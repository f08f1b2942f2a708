//! The disturbances of a run, with their times.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use mortise_harness::{Server, array, command, info};

use crate::history::{Break, Log, Record, now};

/// The disturbing threads write to it.
pub(crate) struct Diary {
    log: Log,
    counts: Mutex<BTreeMap<String, u64>>,
    is_told: bool,
}

impl Diary {
    pub(crate) fn create(path: &Path, is_told: bool) -> io::Result<Diary> {
        Ok(Diary {
            log: Log::create(path)?,
            counts: Mutex::default(),
            is_told,
        })
    }

    /// Runs a disturbance of servers, and records from when to when it lasted.
    pub(crate) fn fault<T>(&self, what: &str, fault: impl FnOnce() -> T) -> T {
        self.record(what, false, fault)
    }

    /// The same for a disturbance of a client or its link.
    pub(crate) fn client_fault<T>(&self, what: &str, fault: impl FnOnce() -> T) -> T {
        self.record(what, true, fault)
    }

    fn record<T>(&self, what: &str, is_of_client: bool, fault: impl FnOnce() -> T) -> T {
        let from = now();
        if self.is_told {
            eprintln!("{:10.3} {what}", from as f64 / 1e9);
        }
        let done = fault();
        let what = what.to_owned();
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what.clone()).or_default() += 1;
        let to = now();
        self.log.write(&Record::Fault {
            what,
            is_of_client,
            from,
            to,
        });
        done
    }

    /// Runs disturbances by which another server becomes the primary, and records from when to when there could be two.
    pub(crate) fn failover<T>(&self, failover: impl FnOnce() -> T) -> T {
        let from = now();
        let done = failover();
        self.log.write(&Record::Failover { from, to: now() });
        done
    }

    /// Makes a server break all locks, which ends all earlier grants.
    pub(crate) fn break_locks(&self, server: &Server, command: &[&str], may_return: bool) {
        let from = now();
        let mut conn = server.connect();
        let mut breaking = mortise_harness::redis::Cmd::new();
        for word in command {
            breaking.arg(*word);
        }
        let steps = [
            command!("MULTI"),
            command!("INFO", "lock"),
            breaking,
            command!("EXEC"),
        ];
        let replies = conn.pipeline(&steps);
        let done = replies[3].as_ref().expect("a server that takes writes");
        let token = info(&array(done)[0])["lock_last_token"]
            .parse()
            .expect("a token");
        self.log.write(&Record::Break(Break {
            token,
            from,
            to: now(),
            may_return,
        }));
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
