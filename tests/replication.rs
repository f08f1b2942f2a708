//! A replica holds the same locks as its primary, decides nothing, and changes nothing by itself.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{
    Conn, Server, Shutdown, Snapshot, assert_same_data, cmd, eventually, hold_of, int, is_nil,
    lock_info, send, text, try_cmd, wait_for_sync, wall_micros,
};

fn replica_of(primary: &Server) -> Server {
    let replica = Server::builder().replica_of(primary).start();
    wait_for_sync(primary, &replica);
    replica
}

/// Fails unless the replica has the primary's holds, and none of them ends earlier there.
#[track_caller]
fn assert_same_holds(primary: &Server, replica: &Server) {
    assert_same_data(primary, replica);
    let here = Snapshot::take(primary);
    Snapshot::take(replica).assert_no_lease_is_shorter(&here);
}

/// Locks of all kinds, with effects of all kinds behind them.
fn make_history(conn: &mut Conn) {
    for db in [0, 9] {
        cmd!(conn, "SELECT", db);
        cmd!(conn, "LOCK.ACQUIRE", "counted", "a", 600_000, "HOLDS", 7);
        cmd!(conn, "LOCK.RLOCK", "counted", "a", 600_000, "HOLDS", 3);
        cmd!(conn, "LOCK.RELEASE", "counted", "a", "WRITE");
        for n in 0..30 {
            cmd!(
                conn,
                "LOCK.RLOCK",
                "read",
                format!("reader:{n}"),
                600_000 + n,
                "HOLDS",
                n + 1
            );
        }
        for n in (0..30).step_by(3) {
            cmd!(conn, "LOCK.RELEASE", "read", format!("reader:{n}"), "ALL");
        }
        cmd!(conn, "LOCK.RLOCK", "upgraded", "a", 600_000);
        cmd!(conn, "LOCK.WLOCK", "upgraded", "a", 600_000);
        cmd!(conn, "LOCK.ACQUIRE", "downgraded", "a", 600_000);
        cmd!(conn, "LOCK.RLOCK", "downgraded", "a", 600_000);
        cmd!(conn, "LOCK.RELEASE", "downgraded", "a", "WRITE");
        let token = int(&cmd!(conn, "LOCK.ACQUIRE", "fenced", "a", 600_000));
        cmd!(conn, "LOCK.FENCE", "fenced", "a", token + 1_000_000);
        cmd!(conn, "LOCK.ACQUIRE", "renewed", "a", 60_000);
        cmd!(conn, "LOCK.RENEW", "renewed", "a", 86_400_000);
        cmd!(conn, "LOCK.ACQUIRE", "released", "a", 600_000);
        cmd!(conn, "LOCK.RELEASE", "released", "a");
        cmd!(conn, "LOCK.ACQUIRE", "old name", "a", 600_000);
        cmd!(conn, "RENAME", "old name", "new name");
        cmd!(conn, "LOCK.RLOCK", "new name", "a", 600_000);
        cmd!(conn, "COPY", "read", "copy");
        cmd!(conn, "LOCK.RELEASE", "copy", "reader:1");
        cmd!(conn, "LOCK.ACQUIRE", "deleted", "a", 600_000);
        cmd!(conn, "DEL", "deleted");
        cmd!(
            conn,
            "LOCK.ACQUIRE",
            &b"odd\0\r\n\xff"[..],
            vec![0xff_u8; 255],
            600_000
        );
    }
    cmd!(conn, "SWAPDB", 9, 3);
    cmd!(conn, "SELECT", 0);
}

#[test]
fn a_replica_that_attaches_later_has_every_hold() {
    for diskless in ["yes", "no"] {
        let primary = Server::builder()
            .config("repl-diskless-sync", diskless)
            .start();
        make_history(&mut primary.connect());
        let replica = replica_of(&primary);
        assert_same_holds(&primary, &replica);
        assert_eq!(Snapshot::take(&replica).facts().len(), 2 * 9);
    }
}

#[test]
fn a_replica_that_is_attached_follows_every_change() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    make_history(&mut primary.connect());
    assert_same_holds(&primary, &replica);
    for (name, value) in [("locks", 18), ("last_token", primary.gauge("last_token"))] {
        assert_eq!(replica.gauge(name), value, "{name}");
    }
}

#[test]
fn a_replica_of_a_replica_follows_too() {
    let primary = Server::start();
    let middle = replica_of(&primary);
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE", "before", "a", 600_000);
    let last = replica_of(&middle);
    make_history(&mut conn);
    assert_same_holds(&primary, &middle);
    assert_same_holds(&middle, &last);
    cmd!(conn, "LOCK.ACQUIRE", "short", "a", 20);
    eventually("its end reaches the last", || {
        lock_info(&mut conn, "short").is_none()
            && int(&cmd!(last.connect(), "EXISTS", "short")) == 0
    });
    assert_same_holds(&primary, &middle);
    assert_same_holds(&middle, &last);
}

#[test]
fn transactions_and_scripts_reach_a_replica_with_all_they_did() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut conn = primary.connect();
    cmd!(conn, "MULTI");
    for n in 0..5 {
        cmd!(conn, "LOCK.ACQUIRE", format!("lock:{n}"), "a", 600_000);
        cmd!(conn, "LOCK.ACQUIRE", "lock:0", "a", 600_000);
        cmd!(conn, "SET", format!("string:{n}"), n);
    }
    cmd!(conn, "LOCK.RELEASE", "lock:3", "a");
    cmd!(conn, "EXEC");
    let script = "for i = 1, 5 do redis.call('LOCK.RLOCK', KEYS[1], 'a' .. i, 600000) end \
                  redis.call('LOCK.RELEASE', KEYS[1], 'a3') \
                  return redis.call('LOCK.ACQUIRE', KEYS[2], 'b', 600000)";
    assert!(is_nil(&cmd!(conn, "EVAL", script, 2, "read", "lock:1")));
    assert_same_holds(&primary, &replica);
    assert_eq!(
        lock_info(&mut replica.connect(), "read").unwrap().holders,
        4
    );
}

#[test]
fn a_refused_request_is_no_traffic() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 600_000);
    wait_for_sync(&primary, &replica);
    let applied = |server: &Server| {
        server
            .info("commandstats")
            .get("cmdstat_LOCK.APPLY")
            .cloned()
    };
    let before = applied(&replica);
    assert!(before.is_some());
    for _ in 0..50 {
        cmd!(conn, "LOCK.ACQUIRE", "key", "b", 600_000);
        cmd!(conn, "LOCK.RELEASE", "key", "b");
        cmd!(conn, "LOCK.RENEW", "key", "b", 600_000);
        cmd!(conn, "LOCK.INFO", "key");
    }
    wait_for_sync(&primary, &replica);
    assert_eq!(applied(&replica), before);
}

#[test]
fn a_replica_refuses_every_change_though_it_be_writable() {
    for read_only in ["yes", "no"] {
        let primary = Server::start();
        let replica = Server::builder()
            .replica_of(&primary)
            .config("replica-read-only", read_only)
            .start();
        cmd!(primary.connect(), "LOCK.ACQUIRE", "key", "a", 600_000);
        wait_for_sync(&primary, &replica);
        let before = Snapshot::take(&replica);
        let mut conn = replica.connect();
        for command in [
            ["LOCK.ACQUIRE", "key", "a", "600000"].as_slice(),
            &["LOCK.ACQUIRE", "free", "a", "600000"],
            &["LOCK.WLOCK", "key", "b", "600000"],
            &["LOCK.RLOCK", "key", "b", "600000", "WAIT", "0"],
            &["LOCK.RELEASE", "key", "a"],
            &["LOCK.RELEASE", "key", "b", "ALL"],
            &["LOCK.RENEW", "key", "a", "86400000"],
            &["LOCK.FENCE", "key", "a", "1"],
        ] {
            let error = conn.try_cmd(command).unwrap_err();
            assert!(error.starts_with("READONLY "), "{command:?}: {error}");
        }
        for internal in [
            ["LOCK.APPLY", "key", "\x01\x01F"],
            ["LOCK.SETTLE", "key", "x"],
        ] {
            assert!(conn.try_cmd(&internal).is_err(), "{internal:?}");
        }
        Snapshot::take(&replica).assert_continues(&before);
        assert_same_holds(&primary, &replica);
    }
}

#[test]
fn the_end_of_a_lease_reaches_a_replica_as_the_primarys_decision() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let (mut conn, mut there) = (primary.connect(), replica.connect());
    cmd!(conn, "LOCK.RLOCK", "read", "long", 600_000);
    cmd!(conn, "LOCK.RLOCK", "read", "short", 50);
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 50);
    eventually("the replica has dropped what has ended", || {
        int(&cmd!(there, "EXISTS", "key")) == 0 && replica.gauge("holders") == 1
    });
    assert_same_holds(&primary, &replica);
}

#[test]
fn a_replica_shows_no_hold_whose_lease_is_over_and_drops_none_by_itself() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    let mut there = replica.connect();
    // Once more if this machine was too slow to freeze the primary before the lease was over.
    eventually("the primary is frozen and the lease runs", || {
        cmd!(primary.connect(), "LOCK.ACQUIRE", "key", "a", 300);
        wait_for_sync(&primary, &replica);
        primary.stop_signal();
        let runs = lock_info(&mut there, "key").is_some();
        if !runs {
            primary.cont_signal();
        }
        runs
    });
    eventually("the lease is over there", || {
        lock_info(&mut there, "key").is_none()
    });
    // Long enough for any sweep.
    let over = Instant::now();
    eventually("time passes", || {
        over.elapsed() > Duration::from_millis(400)
    });
    let there_still = int(&cmd!(there, "EXISTS", "key"));
    primary.cont_signal();
    assert_eq!(there_still, 1, "the primary has not said so");
    eventually("the primary says so", || {
        int(&cmd!(there, "EXISTS", "key")) == 0
    });
}

#[test]
fn a_replica_has_no_bounds_of_its_own() {
    let primary = Server::start();
    let replica = Server::builder()
        .replica_of(&primary)
        .config("lock.max-lease", "1000")
        .config("lock.grace", "60000")
        .start();
    let ahead = wall_micros() + 1_800_000_000;
    cmd!(
        primary.connect(),
        "LOCK.ACQUIRE",
        "key",
        "a",
        86_400_000,
        "FENCE",
        ahead
    );
    assert_same_holds(&primary, &replica);
    assert_eq!(
        hold_of(&mut replica.connect(), "key", "a").unwrap().token,
        ahead
    );
}

/// Takes, re-enters and releases on a hundred locks until told to stop.
fn load(server: &Server, stop: &AtomicBool) {
    let mut conn = server.connect();
    let mut rounds = 0;
    while !stop.load(Relaxed) {
        for n in 0..100_u64 {
            let (key, owner) = (
                format!("lock:{n}"),
                format!("owner:{}", (rounds * 7 + n) % 5),
            );
            match (rounds + n) % 6 {
                0 => send!(conn, "LOCK.ACQUIRE", key, owner, 600_000),
                1 | 2 => send!(conn, "LOCK.RLOCK", key, owner, 600_000),
                3 => send!(conn, "LOCK.RELEASE", key, owner, "ALL"),
                4 => send!(conn, "LOCK.RLOCK", key, owner, 1),
                _ => send!(conn, "LOCK.RELEASE", key, owner, "HOLDS", 0, "READ"),
            }
        }
        (0..100).for_each(|_| drop(conn.recv()));
        rounds += 1;
    }
}

/// Stops the load also where a test fails: the scope would wait for it for ever.
struct StopAtLast<'a>(&'a AtomicBool);

impl Drop for StopAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `meanwhile` while locks change; then the two must have the same holds.
#[track_caller]
fn assert_agree_after(primary: &Server, meanwhile: impl FnOnce() -> Server) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| load(primary, &stop));
        let stopped = StopAtLast(&stop);
        let replica = meanwhile();
        drop(stopped);
        load.join().unwrap();
        // Leases of a millisecond are still being swept.
        eventually("the same holds are left", || {
            assert_same_data(primary, &replica);
            primary.gauge("holders") == replica.gauge("holders")
        });
        assert_same_holds(primary, &replica);
    });
}

#[test]
fn a_replica_that_attaches_amid_changes_agrees_in_the_end() {
    for diskless in ["yes", "no"] {
        let primary = Server::builder()
            .config("repl-diskless-sync", diskless)
            .start();
        assert_agree_after(&primary, || {
            // Long enough that nobody has listened for a while.
            let started = Instant::now();
            eventually("time passes", || started.elapsed() > Duration::from_secs(2));
            let first = replica_of(&primary);
            drop(first);
            replica_of(&primary)
        });
    }
}

/// How often a replica has been synchronised, in part or in full.
fn syncs(primary: &Server) -> i64 {
    stat(primary, "sync_full") + stat(primary, "sync_partial_ok")
}

fn stat(server: &Server, name: &str) -> i64 {
    server.info("stats")[name].parse().unwrap()
}

#[test]
fn a_replica_that_loses_its_link_amid_changes_agrees_in_the_end() {
    let primary = Server::start();
    let replica = replica_of(&primary);
    assert_agree_after(&primary, || {
        for _ in 0..5 {
            let (granted, synced) = (primary.gauge("total_grants"), syncs(&primary));
            cmd!(primary.connect(), "CLIENT", "KILL", "TYPE", "slave");
            eventually("the replica is back and much has happened", || {
                syncs(&primary) > synced && primary.gauge("total_grants") > granted + 500
            });
        }
        replica
    });
}

#[test]
fn a_replicas_own_append_only_file_has_the_effects() {
    for preamble in ["yes", "no"] {
        let mut primary = Server::start();
        let mut replica = Server::builder()
            .config("appendonly", "yes")
            .replica_of(&primary)
            .config("aof-use-rdb-preamble", preamble)
            .start();
        wait_for_sync(&primary, &replica);
        make_history(&mut primary.connect());
        cmd!(primary.connect(), "LOCK.RELEASE", "upgraded", "a", "ALL");
        assert_same_data(&primary, &replica);
        eventually("the replica's first rewrite is done", || {
            let state = replica.info("persistence");
            state["aof_rewrite_in_progress"] == "0" && state["aof_rewrite_scheduled"] == "0"
        });
        let before = Snapshot::take(&primary);
        replica.shutdown(Shutdown::NoSave);
        primary.sigkill();
        replica.start_again();
        Snapshot::take(&replica).assert_no_lease_is_shorter(&before);
        assert_eq!(before.facts().len(), 17);
    }
}

#[test]
fn a_promoted_replica_goes_on_with_the_same_holds_and_higher_tokens() {
    let mut primary = Server::start();
    let replica = replica_of(&primary);
    let last = wall_micros() + 1_800_000_000;
    cmd!(
        primary.connect(),
        "LOCK.ACQUIRE",
        "key",
        "a",
        600_000,
        "FENCE",
        last
    );
    cmd!(primary.connect(), "LOCK.ACQUIRE", "short", "a", 300);
    assert_same_data(&primary, &replica);
    let before = Snapshot::take(&primary);
    primary.sigkill();
    let mut conn = replica.connect();
    cmd!(conn, "REPLICAOF", "NO", "ONE");
    Snapshot::take(&replica).assert_no_lease_is_shorter(&before);
    assert!(is_nil(&cmd!(conn, "LOCK.RLOCK", "key", "b", 1_000)));
    assert_eq!(
        int(&cmd!(conn, "LOCK.RENEW", "key", "a", 1_000, "TOKEN", last)),
        last
    );
    assert!(int(&cmd!(conn, "LOCK.ACQUIRE", "other", "b", 1_000)) > last);
    assert_eq!(
        int(&cmd!(conn, "LOCK.RELEASE", "key", "a", "TOKEN", last)),
        0
    );
    eventually("it sweeps now", || int(&cmd!(conn, "EXISTS", "short")) == 0);
}

#[test]
fn a_demoted_primary_takes_the_locks_of_its_new_primary() {
    let (old, new) = (Server::start(), Server::start());
    let mut conn = old.connect();
    cmd!(conn, "LOCK.ACQUIRE", "old", "a", 600_000);
    cmd!(conn, "LOCK.ACQUIRE", "short", "a", 50);
    make_history(&mut new.connect());
    cmd!(conn, "REPLICAOF", "127.0.0.1", new.port());
    assert_same_holds(&new, &old);
    let error = try_cmd!(conn, "LOCK.ACQUIRE", "key", "a", 1_000).unwrap_err();
    assert!(error.starts_with("READONLY "), "{error}");
    assert_eq!(text(&cmd!(conn, "TYPE", "old")), "none");
    make_history(&mut new.connect());
    assert_same_holds(&new, &old);
    assert_eq!(old.gauge("locks"), new.gauge("locks"));
}
