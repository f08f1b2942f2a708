//! Servers on different machines, with other boots, other boot-time clocks, and wall clocks that differ by hours. That shortens no
//! lease, however it reaches a replica, and whatever happens there.

use std::cell::Cell;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::ClockStep::{Back, Forward};
use mortise_harness::{
    Builder, ClockStep, Cluster, Conn, Server, Shutdown, Snapshot, bytes, cmd, eventually,
    eventually_within, hold_of, info, int, is_nil, wait_for_sync, wall_micros,
};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// How far a replica's wall clock differs from its primary's.
const SKEWS: [ClockStep; 4] = [Forward(HOUR), Back(HOUR), Forward(DAY), Back(DAY)];

/// Runs `test` for all skews in parallel, because it mostly waits.
fn side_by_side(test: impl Fn(ClockStep) + Sync) {
    thread::scope(|scope| {
        for skew in SKEWS {
            let test = &test;
            scope.spawn(move || test(skew));
        }
    });
}

fn elsewhere(skew: ClockStep) -> Builder {
    Server::builder().on_another_machine(skew)
}

fn replica(primary: &Server, builder: Builder) -> Server {
    let replica = builder.replica_of(primary).start();
    wait_for_sync(primary, &replica);
    replica
}

/// Acquires locks of several kinds whose keys begin with `prefix`.
fn take_locks(conn: &mut Conn, prefix: &str) {
    let key = |name: &str| format!("{prefix}:{name}");
    cmd!(conn, "LOCK.ACQUIRE", key("write"), "a", 600_000, "HOLDS", 3);
    cmd!(conn, "LOCK.RLOCK", key("write"), "a", 600_000);
    for owner in ["a", "b", "c"] {
        cmd!(conn, "LOCK.RLOCK", key("read"), owner, 600_000);
    }
    cmd!(conn, "LOCK.RENEW", key("read"), "b", 1_200_000);
    cmd!(conn, "LOCK.ACQUIRE", key("renamed away"), "a", 600_000);
    cmd!(conn, "RENAME", key("renamed away"), key("renamed"));
    cmd!(conn, "LOCK.RENEW", key("renamed"), "a", 700_000);
    cmd!(conn, "COPY", key("read"), key("copy"));
}

/// Fails unless the replica has the primary's holds, and none ends earlier there, or lasts longer than its whole lease.
#[track_caller]
fn assert_no_lease_is_shorter(primary: &Server, replica: &Server) {
    wait_for_sync(primary, replica);
    let here = Snapshot::take(primary);
    Snapshot::take(replica).assert_no_lease_is_shorter(&here);
}

#[test]
fn a_full_sync_a_stream_a_partial_sync_and_a_promotion_shorten_no_lease() {
    side_by_side(|skew| {
        let (mut primary, mut conn) = Server::start_connected();
        take_locks(&mut conn, "full sync");
        let replica = replica(&primary, elsewhere(skew));
        assert_no_lease_is_shorter(&primary, &replica);
        take_locks(&mut conn, "stream");
        assert_no_lease_is_shorter(&primary, &replica);
        // Locks taken before the replica is back come by a partial sync.
        cmd!(conn, "CLIENT KILL TYPE replica");
        take_locks(&mut conn, "partial sync");
        assert_no_lease_is_shorter(&primary, &replica);
        let stats = primary.info("stats");
        assert_eq!(
            (&stats["sync_full"][..], &stats["sync_partial_ok"][..]),
            ("1", "1")
        );

        let before = Snapshot::take(&primary);
        assert_eq!(before.facts().len(), 3 * 4);
        let last = primary.gauge("last_token");
        primary.sigkill();
        cmd!(replica.connect(), "REPLICAOF NO ONE");
        Snapshot::take(&replica).assert_no_lease_is_shorter(&before);
        let mut conn = replica.connect();
        for key in ["stream:write", "partial sync:write"] {
            assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", key, "b", 1_000)));
        }
        let token = int(&cmd!(conn, "LOCK.ACQUIRE new b 1000"));
        assert!(token > last, "{token} is not past {last}");
    });
}

#[test]
fn a_lock_restored_on_a_primary_is_on_its_replica_whatever_its_clock() {
    for read_only in ["yes", "no"] {
        side_by_side(|skew| {
            let mut primary = Server::start();
            let builder = elsewhere(skew).config("replica-read-only", read_only);
            let replica = replica(&primary, builder);
            let origin = Server::start();
            let dump = |key: &str, ahead: i64| {
                let (mut conn, token) = (origin.connect(), wall_micros() + ahead);
                cmd!(conn, "LOCK.RLOCK {key} a 600000");
                cmd!(conn, "LOCK.RLOCK {key} b 600000 FENCE {token}");
                bytes(&cmd!(conn, "DUMP {key}"))
            };
            let mut conn = primary.connect();
            // The primary replicates a restored lock under the restored name, but this lock has another name by then.
            let payload = dump("renamed", 3_500_000_000);
            cmd!(conn, "MULTI");
            cmd!(conn, "RESTORE", "before", 0, payload);
            cmd!(conn, "RENAME before renamed");
            cmd!(conn, "EXEC");
            cmd!(conn, "LOCK.RLOCK key c 600000");
            let payload = dump("key", 3_590_000_000);
            cmd!(conn, "RESTORE", "key", 0, payload, "REPLACE");
            wait_for_sync(&primary, &replica);
            let before = Snapshot::take(&primary);
            assert_eq!(before.facts().len(), 2);
            let last = primary.gauge("last_token");
            primary.sigkill();
            cmd!(replica.connect(), "REPLICAOF NO ONE");
            Snapshot::take(&replica).assert_no_lease_is_shorter(&before);
            let mut conn = replica.connect();
            for key in ["key", "renamed"] {
                assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE {key} d 1000")));
            }
            let token = int(&cmd!(conn, "LOCK.ACQUIRE new d 1000"));
            assert!(token > last, "{token} is not past {last}");
        });
    }
}

#[test]
fn a_replica_of_a_replica_shortens_no_lease_with_three_different_clocks() {
    side_by_side(|skew| {
        let primary = elsewhere(skew).start();
        let mut conn = primary.connect();
        take_locks(&mut conn, "before");
        let middle = replica(&primary, Server::builder());
        let opposite = match skew {
            Forward(by) => Back(by),
            Back(by) => Forward(by),
        };
        let last = replica(&middle, elsewhere(opposite));
        take_locks(&mut conn, "after");
        assert_no_lease_is_shorter(&primary, &middle);
        assert_no_lease_is_shorter(&primary, &middle);
        wait_for_sync(&middle, &last);
        let here = Snapshot::take(&primary);
        Snapshot::take(&last).assert_no_lease_is_shorter(&here);
    });
}

#[test]
fn a_lease_ends_on_a_replica_no_later_than_the_primary_replicated() {
    side_by_side(|skew| {
        let primary = Server::start();
        let replica = replica(&primary, elsewhere(skew));
        let mut conn = replica.connect();
        // Repeats this if the machine is too slow to freeze the primary before the end of the lease.
        eventually("the primary is frozen and the lease runs", || {
            cmd!(primary.connect(), "LOCK.ACQUIRE key a 300");
            wait_for_sync(&primary, &replica);
            primary.stop_signal();
            let runs = hold_of(&mut conn, "key", "a").is_some();
            if !runs {
                primary.cont_signal();
            }
            runs
        });
        // The replica replies so by itself; the key is deleted when the primary deletes it.
        eventually("the lease is over on the replica", || {
            hold_of(&mut conn, "key", "a").is_none()
        });
        let exists = int(&cmd!(conn, "EXISTS key"));
        primary.cont_signal();
        assert_eq!(exists, 1);
    });
}

/// How a replica saves its data.
const KEPT: [&[(&str, &str)]; 3] = [
    &[],
    &[("appendonly", "yes"), ("appendfsync", "always")],
    &[
        ("appendonly", "yes"),
        ("appendfsync", "always"),
        ("aof-use-rdb-preamble", "no"),
    ],
];

fn keeping(builder: Builder, kept: &[(&str, &str)]) -> Builder {
    kept.iter().fold(builder, |builder, (name, value)| {
        builder.config(name, value)
    })
}

/// A replica on another machine that saves its data as `kept`, with locks from a full sync and from the stream; and the
/// locks of its primary, which has ended.
fn orphan(kept: &[(&str, &str)], skew: ClockStep) -> (Server, Snapshot) {
    let (mut primary, mut conn) = Server::start_connected();
    take_locks(&mut conn, "full sync");
    let replica = replica(&primary, keeping(elsewhere(skew), kept));
    // An append-only file is rewritten after a full sync.
    replica.await_rewrite();
    if !kept.is_empty() {
        take_locks(&mut conn, "stream");
        wait_for_sync(&primary, &replica);
    }
    let locks = Snapshot::take(&primary);
    primary.sigkill();
    (replica, locks)
}

#[test]
fn a_replica_that_restarts_with_its_files_before_and_after_its_promotion_shortens_no_lease() {
    for kept in KEPT {
        side_by_side(|skew| {
            let (mut replica, locks) = orphan(kept, skew);
            replica.sigkill();
            replica.start_again();
            Snapshot::take(&replica).assert_no_lease_is_shorter(&locks);
            cmd!(replica.connect(), "REPLICAOF NO ONE");
            Snapshot::take(&replica).assert_no_lease_is_shorter(&locks);
            // As a primary, too.
            replica.sigkill();
            replica.set_config("replicaof", "no one");
            replica.start_again();
            Snapshot::take(&replica).assert_no_lease_is_shorter(&locks);
        });
    }
}

#[test]
fn a_clusters_replica_that_restarts_with_its_files_and_takes_over_shortens_no_lease() {
    thread::scope(|scope| {
        for kept in KEPT {
            scope.spawn(move || take_over_with_files(kept));
        }
    });
}

fn take_over_with_files(kept: &[(&str, &str)]) {
    let started = Cell::new(0);
    let mut cluster = Cluster::start_with_replicas(1, || {
        // The primary is started first.
        if started.replace(started.get() + 1) == 0 {
            return Server::builder();
        }
        keeping(elsewhere(Forward(DAY)), kept)
    });
    let (primary, replica) = (&mut cluster.primaries[0], &mut cluster.replicas[0]);
    take_locks(&mut primary.connect(), "{slot}:full sync");
    // Without its data it gets all locks by a full sync.
    replica.sigkill();
    for file in ["dump.rdb", "appendonlydir"] {
        let path = replica.dir().join(file);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
    replica.start_again();
    wait_for_sync(primary, replica);
    replica.await_rewrite();
    if !kept.is_empty() {
        take_locks(&mut primary.connect(), "{slot}:stream");
        wait_for_sync(primary, replica);
    }
    let locks = Snapshot::take(primary);
    primary.sigkill();
    replica.sigkill();
    replica.start_again();
    let mut conn = replica.connect();
    cmd!(conn, "CLUSTER FAILOVER TAKEOVER");
    eventually_within(Duration::from_secs(60), "the replica serves", || {
        info(&cmd!(conn, "CLUSTER INFO"))["cluster_state"] == "ok"
    });
    Snapshot::take(replica).assert_no_lease_is_shorter(&locks);
}

#[test]
fn a_file_brought_to_another_machine_shortens_no_lease() {
    side_by_side(|skew| {
        let mut old = elsewhere(Back(HOUR)).start();
        take_locks(&mut old.connect(), "saved");
        let locks = Snapshot::take(&old);
        old.shutdown(Shutdown::Save);
        let mut new = elsewhere(skew).start();
        new.sigkill();
        fs::copy(old.dir().join("dump.rdb"), new.dir().join("dump.rdb")).unwrap();
        new.start_again();
        Snapshot::take(&new).assert_no_lease_is_shorter(&locks);
    });
}

#[test]
fn after_a_reboot_the_wall_clock_ends_leases_only_if_the_machine_is_known() {
    for known in [true, false] {
        let mut server = elsewhere(Back(DAY)).start();
        if !known {
            server.forget_machine();
            server.restart(Shutdown::NoSave);
        }
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE short a 600000");
        cmd!(conn, "LOCK.ACQUIRE", "long", "a", 2 * 3_600_000);
        server.shutdown(Shutdown::Save);
        server.reboot_machine();
        server.step_clock(Forward(HOUR));
        server.start_again();
        let mut conn = server.connect();
        assert_eq!(hold_of(&mut conn, "short", "a").is_some(), !known);
        let long = hold_of(&mut conn, "long", "a").unwrap();
        assert_eq!(long.lease <= 3_600_000, known, "{long:?}");
    }
}

#[test]
fn a_replica_that_restarts_on_the_same_boot_counts_the_time_that_has_passed() {
    let primary = Server::start();
    for kept in KEPT {
        let builder = keeping(Server::builder(), kept);
        let mut replica = replica(&primary, builder.config("save", "3600 1"));
        replica.await_rewrite();
        cmd!(primary.connect(), "LOCK.ACQUIRE key a 600000");
        wait_for_sync(&primary, &replica);
        let locks = Snapshot::take(&replica);
        let began = Instant::now();
        replica.shutdown(Shutdown::AsConfigured);
        primary.stop_signal();
        eventually("time passes", || {
            began.elapsed() > Duration::from_millis(500)
        });
        replica.start_again();
        let now = Snapshot::take(&replica);
        primary.cont_signal();
        now.assert_continues(&locks);
    }
}
