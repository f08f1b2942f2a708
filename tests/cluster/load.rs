//! Cluster: clients contend for a lock while its slot moves back and forth.
//!
//! They use the cluster client of the `redis` crate, which follows `MOVED` and `ASK`, and repeat a request that got
//! `UNBLOCKED`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mortise_harness::redis::RedisResult;
use mortise_harness::redis::cluster::{ClusterClient, ClusterConnection};
use mortise_harness::{
    Cluster, Record, Server, Stint, begin_migration, cmd, command, end_migration,
    eventually_within, int, migrate, node_id, try_cmd,
};

const KEY: &str = "key";
const CLIENTS: usize = 6;
const MOVES: usize = 6;
const PATIENCE: Duration = Duration::from_secs(60);

/// Clients that acquire, check whether they are alone, and release.
struct Crowd {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    inside: AtomicUsize,
    sent_away: AtomicUsize,
    record: Mutex<Record>,
}

impl Crowd {
    fn start(cluster: &Cluster) -> Crowd {
        let urls: Vec<String> = cluster.primaries.iter().map(Server::url).collect();
        let shared = Arc::new(Shared::default());
        let threads = (0..CLIENTS).map(|number| {
            let client = ClusterClient::new(urls.clone()).expect("urls");
            let conn = client.get_connection().expect("the cluster answers");
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.contend(number, conn))
        });
        Crowd {
            threads: threads.collect(),
            shared,
        }
    }

    /// Waits for this many more turns.
    #[track_caller]
    fn await_stints(&self, more: usize) {
        let count = || self.shared.record.lock().unwrap().stints.len();
        let target = count() + more;
        eventually_within(PATIENCE, "the lock is handed on", || {
            let dead = self.threads.iter().any(JoinHandle::is_finished);
            assert!(!dead, "a client has panicked");
            let seen = count();
            if seen >= target {
                Ok(())
            } else {
                Err((seen, target))
            }
        });
    }

    /// Stops the clients after every wait has ended. Returns how often a waiter got `UNBLOCKED`, and what the clients recorded.
    fn stop(self) -> (usize, Record) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("no client has panicked");
        }
        let mut record = std::mem::take(&mut *self.shared.record.lock().unwrap());
        record.stints.sort_by_key(|stint| stint.begin);
        (self.shared.sent_away.load(Ordering::SeqCst), record)
    }
}

impl Shared {
    fn contend(&self, number: usize, mut conn: ClusterConnection) {
        for request in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let owner = format!("client-{number}-{request}");
            let Some(token) = self.acquire(&mut conn, &owner) else {
                continue;
            };
            let begin = Instant::now();
            assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two inside");
            // Sometimes for longer than the server takes to notice that a slot has left.
            let stay = if request % 5 == 0 { 300 } else { 3 };
            thread::sleep(Duration::from_millis(stay));
            assert_eq!(self.inside.fetch_sub(1, Ordering::SeqCst), 1, "two inside");
            let end = Instant::now();
            let release = command!("LOCK.RELEASE {KEY} {owner} TOKEN {token}");
            let left: Option<i64> = release.query(&mut conn).expect("a release is answered");
            assert_eq!(left, Some(0), "the hold has moved with its slot");
            self.record.lock().unwrap().stints.push(Stint {
                owner,
                token,
                port: 0,
                begin,
                end,
            });
        }
    }

    /// The token, or `None` if the wait timed out or has to be repeated.
    fn acquire(&self, conn: &mut ClusterConnection, owner: &str) -> Option<i64> {
        let acquire = command!("LOCK.ACQUIRE {KEY} {owner} 30000 WAIT 2000");
        let reply: RedisResult<Option<i64>> = acquire.query(conn);
        match reply {
            Ok(token) => token,
            Err(error) => {
                assert_eq!(error.code(), Some("UNBLOCKED"), "{error}");
                self.sent_away.fetch_add(1, Ordering::SeqCst);
                None
            }
        }
    }
}

fn keep_moving(move_slot: impl Fn(&Crowd, u16, &Server, &Server)) {
    let cluster = Cluster::start(2, Server::builder);
    let home = cluster.home_of(KEY);
    let slot = cluster.slot_of(KEY);
    let crowd = Crowd::start(&cluster);
    crowd.await_stints(10);
    for turn in 0..MOVES {
        let from = (home + turn) % 2;
        let (from, to) = (&cluster.primaries[from], &cluster.primaries[1 - from]);
        move_slot(&crowd, slot, from, to);
        crowd.await_stints(10);
    }
    let (sent_away, record) = crowd.stop();
    record.assert_exclusive();
    assert!(sent_away > 0, "nobody was waiting when the slot moved");
    for node in &cluster.primaries {
        assert_eq!((node.gauge("locks"), node.gauge("waiters")), (0, 0));
        assert_eq!(int(&cmd!(node.connect(), "DBSIZE")), 0);
        eventually_within(PATIENCE, "nobody is blocked", || {
            node.gauge("blocked_clients") == 0
        });
    }
}

#[test]
fn a_slot_that_moves_back_and_forth_by_migrate_leaves_no_two_inside() {
    keep_moving(|crowd, slot, from, to| {
        begin_migration(slot, from, to);
        // A request that finds no key is redirected by now.
        crowd.await_stints(5);
        migrate(KEY, from, to);
        crowd.await_stints(5);
        end_migration(slot, from, to);
    });
}

#[test]
fn a_slot_that_moves_back_and_forth_atomically_leaves_no_two_inside() {
    if !Server::start().version().is_valkey_from(9, 0) {
        return;
    }
    keep_moving(|_, slot, from, to| {
        let mut conn = from.connect();
        let target = node_id(to);
        cmd!(
            conn,
            "CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {target}"
        );
        let mut there = to.connect();
        eventually_within(PATIENCE, "the slot has moved", || {
            try_cmd!(there, "LOCK.INFO", KEY).is_ok()
        });
    });
}
