//! What a change of primary does to waiters, holds and tokens, and what `INFO lock` says about the settings.

use std::time::Instant;

use mortise_harness::{
    Builder, Server, cmd, command, eventually, granted, hold_of, int, is_nil, lock_info,
    replicated, replicated_over_link, send, wait_for_sync, wait_for_sync_over, waiter, wall_micros,
};

#[track_caller]
fn promote(server: &Server) {
    cmd!(server.connect(), "REPLICAOF", "NO", "ONE");
}

#[track_caller]
fn demote(server: &Server, primary: &Server) {
    cmd!(server.connect(), "REPLICAOF", "127.0.0.1", primary.port());
}

#[test]
fn a_release_just_before_failover_grants_once_or_not_at_all() {
    // Either the hand-off comes before the pause, or the waiter gets UNBLOCKED: never both, on no server.
    let (old, new) = replicated(Server::builder);
    let mut conn = old.connect();
    for round in 0..5 {
        let (from, to) = match round % 2 {
            0 => (&old, &new),
            _ => (&new, &old),
        };
        let mut holder = from.connect();
        cmd!(holder, "LOCK.ACQUIRE", "key", "a", 60_000);
        let mut b = waiter!(from, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
        let mut operator = from.connect();
        send!(holder, "LOCK.RELEASE", "key", "a");
        send!(operator, "FAILOVER");
        let released = holder.try_recv();
        operator.recv();
        let answer = b.try_recv();
        wait_for_sync(to, from);
        let owners = lock_info(&mut to.connect(), "key").map(|info| info.holds[0].owner.clone());
        match (released, answer) {
            (Ok(_), Ok(_)) => assert_eq!(owners.as_deref(), Some(&b"b"[..])),
            (Ok(_), Err(_)) => assert_eq!(owners, None),
            // The pause delayed the release, which was then refused.
            (Err(_), Err(_)) => assert_eq!(owners.as_deref(), Some(&b"a"[..])),
            (Err(error), Ok(_)) => panic!("b was granted though a's release was refused: {error}"),
        }
        cmd!(to.connect(), "DEL", "key");
        wait_for_sync(to, from);
    }
    assert!(is_nil(&cmd!(conn, "GET", "none")));
}

#[test]
fn tokens_grow_over_a_promotion_that_lost_the_last_grants() {
    // FENCE pushes the token clock ahead of the wall clock. It jumps, because the last tokens may be lost.
    for fence in [1, wall_micros() + 3_000_000_000] {
        let (mut old, new, link) = replicated_over_link(Server::builder);
        let mut conn = old.connect();
        cmd!(conn, "LOCK.ACQUIRE known a 60000 FENCE {fence}");
        wait_for_sync_over(&link, &old, &new);
        // A frozen replica would lose nothing in its sockets.
        link.cut();
        let mut last = 0;
        for n in 0..1_000 {
            last = int(&cmd!(conn, "LOCK.ACQUIRE lost-{n} a 60000"));
        }
        assert!(last > fence);
        old.sigkill();
        promote(&new);
        let mut conn = new.connect();
        assert!(hold_of(&mut conn, "known", "a").is_some());
        assert!(int(&cmd!(conn, "LOCK.ACQUIRE lost-999 b 60000")) > last);
    }
}

#[test]
fn leases_are_no_shorter_on_the_promoted_server() {
    let (mut old, new) = replicated(Server::builder);
    let mut conn = old.connect();
    for n in 0..50 {
        let lease = 10_000 + 100 * n;
        cmd!(conn, "LOCK.ACQUIRE key-{n} a {lease}");
    }
    wait_for_sync(&old, &new);
    let mut left = Vec::new();
    for n in 0..50 {
        let asked = Instant::now();
        let lease = hold_of(&mut conn, format!("key-{n}"), "a").unwrap().lease;
        left.push((asked, lease));
    }
    old.sigkill();
    promote(&new);
    let mut conn = new.connect();
    for (n, (asked, left)) in left.into_iter().enumerate() {
        let hold = hold_of(&mut conn, format!("key-{n}"), "a").unwrap();
        let gone = i64::try_from(asked.elapsed().as_millis()).unwrap() + 1;
        assert!(hold.lease >= left - gone, "{} after {left}", hold.lease);
    }
}

#[test]
fn a_promoted_server_sweeps_and_hands_off_the_locks_it_took_over() {
    let (mut old, new) = replicated(Server::builder);
    let mut conn = old.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 1_500);
    cmd!(conn, "LOCK.ACQUIRE", "swept", "a", 1_500);
    wait_for_sync(&old, &new);
    old.sigkill();
    promote(&new);
    let mut b = waiter!(new, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    granted(&mut b);
    let mut conn = new.connect();
    eventually("the other key is gone", || {
        int(&cmd!(conn, "EXISTS", "swept")) == 0
    });
}

#[test]
fn a_primary_that_becomes_a_replica_drops_grants_that_were_not_replicated() {
    let (old, new, link) = replicated_over_link(Server::builder);
    link.cut();
    let mut conn = old.connect();
    let lost = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    promote(&new);
    let token = int(&cmd!(new.connect(), "LOCK.ACQUIRE", "key", "b", 60_000));
    assert!(
        token > lost,
        "without a grace two hold, but the tokens differ"
    );
    demote(&old, &new);
    wait_for_sync(&new, &old);
    assert!(hold_of(&mut conn, "key", "a").is_none());
    assert_eq!(hold_of(&mut conn, "key", "b").unwrap().token, token);
}

fn guarded(max_lease: u64, grace: u64) -> Builder {
    Server::builder()
        .module_arg("max-lease", &max_lease.to_string())
        .module_arg("grace", &grace.to_string())
        .config("min-replicas-max-lag", "2")
}

#[track_caller]
fn assert_missing(server: &Server, expected: Option<&str>) {
    eventually("INFO lock says so", || {
        let lines = server.info("lock");
        let shown = ["safe", "missing"].map(|it| lines[&format!("lock_failover_{it}")].clone());
        let [safe, missing] = &shown;
        let right = match expected {
            None => safe == "1" && missing.is_empty(),
            Some(setting) => safe == "0" && missing.contains(setting),
        };
        if right { Ok(()) } else { Err(shown) }
    });
}

#[test]
fn info_says_whether_failover_is_safe_and_what_is_missing() {
    let primary = guarded(1_000, 6_000).start();
    let mut conn = primary.connect();
    assert_missing(&primary, Some("min-replicas-to-write is 0"));
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
    assert_missing(&primary, None);
    let first = guarded(1_000, 6_000).replica_of(&primary).start();
    wait_for_sync(&primary, &first);
    assert_missing(&primary, None);
    let second = guarded(1_000, 5_999).replica_of(&primary).start();
    wait_for_sync(&primary, &second);
    assert_missing(&primary, Some("less than the 2 replicas"));
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 2);
    assert_missing(&primary, None);
    // A replica reports what would be missing after its promotion.
    assert_missing(&first, None);
    assert_missing(&second, Some("lock.grace 5999 is less than 6000"));
    cmd!(conn, "CONFIG", "SET", "min-replicas-max-lag", 3);
    assert_missing(&primary, Some("lock.grace"));
    cmd!(conn, "CONFIG", "SET", "min-replicas-max-lag", 0);
    assert_missing(&primary, Some("min-replicas-max-lag is 0"));
    cmd!(conn, "CONFIG", "SET", "min-replicas-max-lag", 2);
    cmd!(conn, "CONFIG", "SET", "lock.grace", 0);
    assert_missing(&primary, Some("lock.grace 0 is less than 6000"));
    cmd!(conn, "CONFIG", "SET", "lock.grace", 6_000);
    assert_missing(&primary, None);
    cmd!(conn, "CONFIG", "SET", "min-replicas-max-lag", 2);
    cmd!(conn, "CONFIG", "SET", "lock.max-lease", 1_001);
    assert_missing(&primary, Some("lock.grace"));
}

#[test]
fn info_knows_of_leases_longer_than_the_present_max_lease() {
    let primary = guarded(60_000, 0).start();
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    cmd!(conn, "CONFIG", "SET", "lock.max-lease", 1_000);
    cmd!(conn, "CONFIG", "SET", "lock.grace", 6_000);
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
    assert_missing(&primary, Some("a lease may run for"));
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 0);
    cmd!(conn, "LOCK.RELEASE", "key", "a");
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
    assert_missing(&primary, None);
}

#[test]
fn info_knows_of_a_waiter_with_a_lease_longer_than_the_present_max_lease() {
    let primary = guarded(100_000, 0).start();
    let mut conn = primary.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    let leases = [("b", 60_000), ("c", 100_000), ("d", 60_000)];
    let mut waiting = leases
        .map(|(owner, lease)| waiter!(primary, "LOCK.ACQUIRE", "key", owner, lease, "WAIT", 0));
    cmd!(conn, "CONFIG", "SET", "lock.max-lease", 60_000);
    cmd!(conn, "CONFIG", "SET", "lock.grace", 65_000);
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
    assert_missing(&primary, Some("a waiter asked for a lease of 100000 ms"));
    for waiter in &mut waiting {
        cmd!(conn, "CLIENT", "UNBLOCK", waiter.client_id());
        assert!(is_nil(&waiter.recv()));
    }
    assert_missing(&primary, None);
}

#[test]
fn info_knows_of_long_leases_of_locks_that_were_renamed_or_moved() {
    for away in [
        command!("RENAME", "key", "other"),
        command!("MOVE", "key", 1),
    ] {
        let primary = guarded(60_000, 0).start();
        let mut conn = primary.connect();
        cmd!(conn, "LOCK.RLOCK", "key", "a", 60_000);
        cmd!(conn, "LOCK.RLOCK", "key", "b", 500);
        conn.run(&away);
        cmd!(conn, "CONFIG", "SET", "lock.max-lease", 1_000);
        cmd!(conn, "CONFIG", "SET", "lock.grace", 6_000);
        cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
        assert_missing(&primary, Some("a lease may run for"));
        cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 0);
        cmd!(conn, "FLUSHALL");
        cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
        assert_missing(&primary, None);
    }
}
