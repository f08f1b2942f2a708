//! Many requests by mail, sent over one connection, to all of which something happens at once.

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Conn, Server, cmd, command, eventually_within, holders_of, int, mail, send, try_cmd, waiter,
};

use crate::{MANY, PATIENCE, assert_never_long, run_many, server_alone};

/// One box takes a tenth of `lock.max-queued` at most: 200,000.
const BOX: &str = "box";

/// Makes the crowd wait by mail, each for its `request`.
fn queue(conn: &mut Conn, request: impl Fn(usize) -> Cmd) {
    let requests = (0..MANY).map(|n| {
        let mut request = request(n);
        request.arg(&["WAIT", "0", "MAIL", BOX, "HOLDS", "1"]);
        request
    });
    // On a busy machine the lease that is waited for may be over already.
    run_many(conn, requests, drop);
}

/// Each waits at its own key, which is held.
fn one_at_each_key() -> (MutexGuard<'static, ()>, Server, Conn) {
    let (turn, server, mut conn) = server_alone();
    let held = (0..MANY).map(|n| command!("LOCK.ACQUIRE key:{n} a 600000"));
    run_many(&mut conn, held, |token| assert!(int(&token) > 0));
    queue(&mut conn, |n| command!("LOCK.ACQUIRE key:{n} b 600000"));
    assert_eq!(server.gauge("waiters"), MANY as i64);
    (turn, server, conn)
}

/// All wait at `key`, which is held.
fn all_at_one_key() -> (MutexGuard<'static, ()>, Server, Conn) {
    let (turn, server, mut conn) = server_alone();
    cmd!(conn, "LOCK.ACQUIRE key a 600000");
    queue(&mut conn, |n| command!("LOCK.ACQUIRE key b{n} 600000"));
    assert_eq!(server.gauge("waiters"), MANY as i64);
    (turn, server, conn)
}

#[track_caller]
fn all_are_answered(server: &Server) {
    let mut asked = Instant::now();
    eventually_within(PATIENCE, "nobody waits any more", || {
        // A box without a LOCK.MAIL lives for a minute.
        if asked.elapsed() > Duration::from_secs(20) {
            mail!(server.connect(), "{BOX}");
            asked = Instant::now();
        }
        let waiters = server.gauge("waiters");
        if waiters == 0 { Ok(()) } else { Err(waiters) }
    });
}

#[test]
fn a_flush_or_a_swap_of_databases_grants_the_waiters_of_all_keys() {
    for change in ["FLUSHALL ASYNC", "SWAPDB 0 1"] {
        let (_turn, server, mut conn) = one_at_each_key();
        cmd!(conn, "{change}");
        all_are_answered(&server);
        assert_eq!(server.gauge("total_handoffs"), MANY as i64);
        assert_never_long(&server);
    }
}

#[test]
fn a_hand_off_does_not_wait_until_all_have_been_checked() {
    let (_turn, server, mut conn) = one_at_each_key();
    cmd!(conn, "SELECT 2");
    cmd!(conn, "LOCK.ACQUIRE urgent a 60000");
    let mut other = server.connect();
    cmd!(other, "SELECT 2");
    send!(other, "LOCK.ACQUIRE urgent b 60000 WAIT 0");
    server.await_blocked(&other);
    let urgent = command!("LOCK.RELEASE urgent a");
    let flush = command!("SWAPDB 0 1");
    for reply in conn.pipeline(&[flush, urgent]) {
        reply.expect("no error");
    }
    int(&other.recv());
    assert!(server.gauge("waiters") > 0, "only after the others");
    all_are_answered(&server);
}

#[test]
fn a_release_lets_many_readers_in_a_few_at_a_time() {
    let (_turn, server, mut conn) = server_alone();
    cmd!(conn, "LOCK.ACQUIRE key a 600000");
    queue(&mut conn, |n| command!("LOCK.RLOCK key b{n} 600000"));
    cmd!(conn, "LOCK.RELEASE key a");
    assert!(server.gauge("waiters") > 0, "not all at once");
    all_are_answered(&server);
    assert_eq!(server.gauge("holders"), MANY as i64);
    int(&cmd!(conn, "LOCK.RLOCK key c 60000"));
    assert_never_long(&server);
}

#[test]
fn waiters_whose_key_becomes_another_type_are_all_refused() {
    let (_turn, server, mut conn) = all_at_one_key();
    cmd!(conn, "SET key text");
    all_are_answered(&server);
    assert_eq!(server.gauge("letters"), MANY as i64);
    for letter in mail!(conn, "{BOX}").letters {
        let error = letter.error.expect("refused");
        assert!(error.starts_with("WRONGTYPE "), "{error}");
    }
    assert_never_long(&server);
}

#[test]
fn a_request_that_arrives_while_others_are_refused_is_not_refused_with_them() {
    let (_turn, server, mut conn) = all_at_one_key();
    cmd!(conn, "SET key text");
    // The key holds a lock again before all of them have been answered.
    cmd!(conn, "DEL key");
    let waiting = server.gauge("waiters");
    assert!(waiting > 0, "that was too late");
    let mut late = waiter!(server, "LOCK.ACQUIRE key late 60000 WAIT 0");
    eventually_within(PATIENCE, "the others have been answered", || {
        let waiters = server.gauge("waiters");
        if waiters <= 1 { Ok(()) } else { Err(waiters) }
    });
    // One of them got the lock, or all were refused and the late one got it.
    let holder = holders_of(&mut conn, "key").remove(0);
    cmd!(conn, "LOCK.RELEASE key {holder}");
    int(&late.recv());
}

#[test]
fn all_waiters_of_a_server_that_becomes_a_replica_are_unblocked() {
    let (_turn, server, mut conn) = one_at_each_key();
    let mut blocked = waiter!(server, "LOCK.ACQUIRE key:0 c 60000 WAIT 0");
    // No server listens there.
    cmd!(conn, "REPLICAOF 127.0.0.1 1");
    let error = blocked.try_recv().expect_err("sent away");
    assert!(error.starts_with("UNBLOCKED "), "{error}");
    all_are_answered(&server);
    let error = try_cmd!(conn, "LOCK.MAIL {BOX}").expect_err("a replica has no boxes");
    assert!(error.starts_with("READONLY "), "{error}");
    cmd!(conn, "REPLICAOF NO ONE");
    assert_never_long(&server);
}

#[test]
fn leases_that_end_together_at_many_keys_let_all_waiters_in() {
    let (_turn, server, mut conn) = server_alone();
    let lease = MANY / 6;
    let held = (0..MANY).map(|n| command!("LOCK.ACQUIRE key:{n} a {lease}"));
    run_many(&mut conn, held, |token| assert!(int(&token) > 0));
    queue(&mut conn, |n| command!("LOCK.ACQUIRE key:{n} b 600000"));
    all_are_answered(&server);
    assert_eq!(server.gauge("total_grants"), 2 * MANY as i64);
    assert_never_long(&server);
}
