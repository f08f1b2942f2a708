//! A pass is replicated as one change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use mortise_harness::{Server, cmd, command, int, lock_info, wait_for_sync, waiter};

use super::{assert_same_holds, replica_of};

#[test]
fn during_a_pass_a_replica_always_shows_exactly_one_owner() {
    const ROUNDS: usize = 500;
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut conn = primary.connect();
    // One is the only hold of its lock, the other one of several.
    for (key, owner) in [("alone", "0"), ("shared", "0"), ("shared", "stays")] {
        cmd!(conn, "LOCK.RLOCK", key, owner, 600_000);
    }
    wait_for_sync(&primary, &replica);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = || {
            let mut there = replica.connect();
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                for (key, holders) in [("alone", 1), ("shared", 2)] {
                    let lock = lock_info(&mut there, key).expect("it is held");
                    assert_eq!(lock.holders, holders, "{lock:?}");
                }
                looks += 1;
            }
            assert!(looks > 0);
        };
        let watching = scope.spawn(watch);
        for n in 0..ROUNDS {
            let passes =
                ["alone", "shared"].map(|key| command!("LOCK.PASS", key, n, n + 1, 600_000));
            for reply in conn.pipeline(&passes) {
                int(&reply.unwrap());
            }
        }
        wait_for_sync(&primary, &replica);
        over.store(true, Ordering::Relaxed);
        watching.join().unwrap();
    });
    assert_same_holds(&primary, &replica);
}

#[test]
fn a_replica_has_the_grants_and_the_shorter_lease_of_a_pass() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.RLOCK", "key", "a", 86_400_000);
    cmd!(conn, "LOCK.RLOCK", "key", "other", 600_000);
    let _first = waiter!(primary, "LOCK.WLOCK", "key", "w", 1_000, "WAIT", 0);
    let _own = waiter!(primary, "LOCK.RLOCK key b 1000 WAIT 0 HOLDS 7");
    cmd!(conn, "LOCK.PASS", "key", "a", "b", 60_000);
    assert_same_holds(&primary, &replica);
    let holds = lock_info(&mut replica.connect(), "key").unwrap().holds;
    let leases: Vec<_> = holds.iter().map(|hold| hold.lease).collect();
    assert!(leases[0] <= 60_000 && leases[1] > 60_000, "{holds:?}");
}
