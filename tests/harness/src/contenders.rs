//! Clients that contend for one lock over a failover, and record when each believed that it was
//! inside.
//!
//! A client believes by its own clock, from the moment it *sent* the request, and is inside for as long as it believes, as a careful client
//! does. A lock must never allow two to be inside at one time.

mod client;
mod record;
mod shared;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock::wall_micros;
use crate::dice::Dice;
use crate::eventually::within;
use crate::server::Server;

use client::Client;
use shared::Shared;

pub use record::{Record, Stint, assert_finds_two_inside};
pub use shared::{Role, Stay};

/// Running clients. They end when this value is dropped.
#[derive(Debug)]
pub struct Contenders {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Contenders {
    /// Starts a client for each role, all for the lock `key`, at the primary on `port`.
    pub fn start(roles: &[Role], key: &str, port: u16, lease: Duration) -> Contenders {
        Contenders::start_staying(roles, key, port, lease, Stay::Mixed)
    }

    /// The same, with a choice of how long they stay inside.
    pub fn start_staying(
        roles: &[Role],
        key: &str,
        port: u16,
        lease: Duration,
        stay: Stay,
    ) -> Contenders {
        let shared = Arc::new(Shared {
            key: key.to_owned(),
            lease,
            old: port,
            current: AtomicU16::new(port),
            stay,
            stop: AtomicBool::new(false),
            record: Mutex::default(),
        });
        // The time varies, because in step with the server's timers every run would miss the same moments.
        let seed = wall_micros() as u64 | 1;
        let threads = roles.iter().enumerate().map(|(number, role)| {
            let mut client = Client {
                name: format!("{role:?}-{number}").to_lowercase(),
                role: *role,
                disappointed: false,
                requests: 0,
                dice: Dice::new(seed ^ ((number as u64) << 48)),
                shared: Arc::clone(&shared),
            };
            thread::spawn(move || client.run())
        });
        Contenders {
            threads: threads.collect(),
            shared,
        }
    }

    /// The primary is on `port` now.
    pub fn go_to(&self, port: u16) {
        self.shared.current.store(port, Ordering::SeqCst);
    }

    /// Waits until the server has granted `more` times from now on, and those clients are outside again.
    ///
    /// # Panics
    /// If `patience` ends before.
    #[track_caller]
    pub fn await_grants(&self, server: &Server, more: usize, patience: Duration) {
        let granted = || self.shared.record().granted_by(server.port());
        let target = granted() + more;
        if within(patience, || granted() >= target).is_err() {
            let state = (server.info("lock"), server.info("replication"));
            let refusals = self.refusals();
            panic!(
                "the server on port {} grants nothing: {refusals:?}; {state:?}",
                server.port()
            );
        }
    }

    /// How many grants of this server they have seen.
    pub fn granted_by(&self, server: &Server) -> usize {
        self.shared.record().granted_by(server.port())
    }

    /// How often each server has refused, by code, for messages.
    fn refusals(&self) -> BTreeMap<(u16, String), usize> {
        let mut counts = BTreeMap::new();
        for (port, line) in &self.shared.record().refusals {
            let code = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
            *counts.entry((*port, code)).or_default() += 1;
        }
        counts
    }

    /// Stops the clients and returns what they recorded.
    ///
    /// # Panics
    /// If one of them panicked.
    #[track_caller]
    pub fn stop(mut self) -> Record {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().expect("the client did not panic");
        }
        let mut record = std::mem::take(&mut *self.shared.record());
        record.stints.sort_by_key(|stint| stint.begin);
        record
    }
}

impl Drop for Contenders {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
    }
}
