//! All locks of a server at one moment, to be compared with all locks at another, or of another server.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::conn::Conn;
use crate::lock::{Facts, Hold, LockInfo, lock_info};
use crate::server::Server;
use crate::value::{array, bytes, text};

/// A lock's database and key.
type Name = (usize, Vec<u8>);

/// The locks of all databases, and when they were read.
#[derive(Debug, Clone)]
pub struct Snapshot {
    locks: BTreeMap<Name, LockInfo>,
    began: Instant,
    ended: Instant,
}

/// How much time lies between two snapshots, in milliseconds: no two clocks were read at the same moment.
#[derive(Debug, Clone, Copy)]
struct Passed {
    least: i64,
    most: i64,
}

impl Snapshot {
    /// Reads every lock of `server`.
    ///
    /// # Panics
    /// If the server cannot be asked.
    #[track_caller]
    pub fn take(server: &Server) -> Snapshot {
        let began = Instant::now();
        let mut conn = server.connect();
        let mut locks = BTreeMap::new();
        for db in databases(server) {
            conn.run(&crate::command!("SELECT", db));
            for key in lock_keys(&mut conn) {
                // A lease may end between the two reads.
                if let Some(info) = lock_info(&mut conn, &key) {
                    locks.insert((db, key), info);
                }
            }
        }
        Snapshot {
            locks,
            began,
            ended: Instant::now(),
        }
    }

    /// The parts of each lock that do not change with time.
    pub fn facts(&self) -> BTreeMap<(usize, Vec<u8>), (String, Vec<Facts>)> {
        let facts = |info: &LockInfo| (info.mode.clone(), info.facts());
        let locks = self.locks.iter();
        locks
            .map(|(name, info)| (name.clone(), facts(info)))
            .collect()
    }

    /// Fails unless these are the locks of `earlier`, with leases and ages that have moved on by the time between.
    ///
    /// # Panics
    /// If they are not.
    #[track_caller]
    pub fn assert_continues(&self, earlier: &Snapshot) {
        assert_eq!(self.facts(), earlier.facts());
        let passed = self.passed_since(earlier);
        for (name, now, before) in self.holds_beside(earlier) {
            let (less_lease, more_held) = (before.lease - now.lease, now.held - before.held);
            assert!(
                passed.covers(less_lease) && passed.covers(more_held),
                "{name:?}: {now:?} after {before:?} and {passed:?} ms"
            );
            assert_eq!(now.revoked, before.revoked, "{name:?}: {now:?}");
        }
    }

    /// Fails unless these are the locks of `earlier` and no lease ends earlier than it did there.
    ///
    /// # Panics
    /// If they are not.
    #[track_caller]
    pub fn assert_no_lease_is_shorter(&self, earlier: &Snapshot) {
        assert_eq!(self.facts(), earlier.facts());
        let passed = self.passed_since(earlier);
        for (name, now, before) in self.holds_beside(earlier) {
            assert!(
                before.lease - now.lease <= passed.most,
                "{name:?}: {now:?} after {before:?} and {passed:?} ms"
            );
            assert_eq!(now.revoked, before.revoked, "{name:?}: {now:?}");
        }
    }

    /// Fails unless every hold of `earlier` that cannot have ended meanwhile is here, unchanged, and ends no earlier than it did there. For
    /// locks whose leases end while they are being read.
    ///
    /// # Panics
    /// If one is not.
    #[track_caller]
    pub fn assert_keeps(&self, earlier: &Snapshot) {
        let passed = self.passed_since(earlier);
        for (name, before) in &earlier.locks {
            for before in before.holds.iter().filter(|hold| hold.lease > passed.most) {
                let here = self.locks.get(name);
                let mut holds = here.iter().flat_map(|info| &info.holds);
                let now = holds.find(|hold| hold.facts() == before.facts());
                assert!(
                    now.is_some_and(|now| {
                        before.lease - now.lease <= passed.most && now.revoked == before.revoked
                    }),
                    "{name:?}: {here:?} after {before:?} and {passed:?} ms"
                );
            }
        }
    }

    fn holds_beside<'a>(
        &'a self,
        earlier: &'a Snapshot,
    ) -> impl Iterator<Item = (&'a Name, &'a Hold, &'a Hold)> {
        let pairs = self.locks.iter().zip(earlier.locks.values());
        pairs.flat_map(|((name, now), before)| {
            let holds = now.holds.iter().zip(&before.holds);
            holds.map(move |(now, before)| (name, now, before))
        })
    }

    fn passed_since(&self, earlier: &Snapshot) -> Passed {
        let millis = |from: Instant, to: Instant| {
            i64::try_from(to.saturating_duration_since(from).as_millis()).expect("a short test")
        };
        Passed {
            // A millisecond each way: clocks are cut to milliseconds.
            least: millis(earlier.ended, self.began) - 1,
            most: millis(earlier.began, self.ended) + 1,
        }
    }
}

impl Passed {
    fn covers(self, millis: i64) -> bool {
        (self.least..=self.most).contains(&millis)
    }
}

/// The databases that have keys.
fn databases(server: &Server) -> Vec<usize> {
    let keyspace = server.info("keyspace");
    let numbers = keyspace.keys().filter_map(|name| name.strip_prefix("db"));
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// The keys of the selected database that are locks.
#[track_caller]
fn lock_keys(conn: &mut Conn) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let scan = crate::command!("SCAN", &cursor, "TYPE", "mort-lock", "COUNT", 1_000);
        let reply = conn.run(&scan);
        keys.extend(array(&array(&reply)[1]).iter().map(bytes));
        cursor = text(&array(&reply)[0]);
        if cursor == "0" {
            return keys;
        }
    }
}
