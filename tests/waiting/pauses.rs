//! CLIENT PAUSE while requests wait: the server hands nothing over, does not crash, and catches up afterwards.
//!
//! With an AOF, replicating during a pause would crash the server.

use std::time::Instant;

use mortise_harness::{
    Conn, Server, Shutdown, assert_error, cmd, command, eventually, granted, hold_of, holders_of,
    int, is_nil, lock_info, queue_of, request, text, waiter,
};

/// Long enough for a slow machine; each test ends the pause itself.
const PAUSE: u64 = 60_000;

fn with_aof() -> (Server, Conn) {
    Server::configured("appendonly yes")
}

/// Such a server, and a connection that holds `key` as `a`.
fn held(lease: u64) -> (Server, Conn) {
    let (server, mut a) = with_aof();
    cmd!(a, "LOCK.ACQUIRE key a {lease}");
    (server, a)
}

/// Waits until `a`'s lease on `key` is over.
#[track_caller]
fn await_lease_over(conn: &mut Conn) {
    eventually("the lease is over", || hold_of(conn, "key", "a").is_none());
}

#[test]
fn a_lease_that_ends_in_a_write_pause_lets_the_next_in_after_it() {
    let (server, mut a) = held(1_500);
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    cmd!(a, "CLIENT PAUSE {PAUSE} WRITE");
    await_lease_over(&mut a);
    server.await_gauge("held_back", 1);
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    assert_eq!(lock_info(&mut a, "key").unwrap().mode, "none");
    cmd!(a, "CLIENT UNPAUSE");
    granted(&mut b);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
    assert_eq!(server.gauge("held_back"), 0);
}

#[test]
fn a_writer_that_times_out_in_a_pause_lets_the_readers_in_after_it() {
    let (server, mut a) = with_aof();
    cmd!(a, "LOCK.RLOCK key a 60000");
    let mut w = waiter!(server, "LOCK.WLOCK key w 60000 WAIT 1500");
    let mut r = waiter!(server, "LOCK.RLOCK key r 60000 WAIT 0");
    cmd!(a, "CLIENT PAUSE {PAUSE} WRITE");
    assert!(is_nil(&w.recv()));
    assert_eq!(queue_of(&mut a, "key"), ["r"]);
    assert_eq!(holders_of(&mut a, "key"), ["a"]);
    cmd!(a, "CLIENT UNPAUSE");
    granted(&mut r);
}

#[test]
fn a_lease_and_a_wait_that_end_in_a_pause_of_all_commands_are_handled_after_it() {
    let (server, mut a) = held(1_500);
    cmd!(a, "LOCK.ACQUIRE other a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(server, "LOCK.ACQUIRE other c 60000 WAIT 1500");
    cmd!(a, "CLIENT PAUSE 2500 ALL");
    assert!(is_nil(&c.recv()));
    granted(&mut b);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
}

#[test]
fn a_waiter_that_disconnects_in_a_pause_is_not_served_after_it() {
    let (server, mut a) = held(1_500);
    let b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    cmd!(a, "CLIENT PAUSE {PAUSE} WRITE");
    await_lease_over(&mut a);
    drop(b);
    eventually("b has left", || queue_of(&mut a, "key") == ["c"]);
    cmd!(a, "CLIENT UNPAUSE");
    granted(&mut c);
    assert_eq!(holders_of(&mut a, "key"), ["c"]);
}

#[test]
fn a_waiter_unblocked_in_a_pause_gets_its_reply_at_once() {
    let (server, mut a) = held(60_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    cmd!(a, "CLIENT PAUSE {PAUSE} WRITE");
    cmd!(a, "CLIENT", "UNBLOCK", b.client_id());
    assert!(is_nil(&b.recv()));
    cmd!(a, "CLIENT", "UNBLOCK", c.client_id(), "ERROR");
    assert_error(c.try_recv(), "UNBLOCKED ");
    cmd!(a, "CLIENT UNPAUSE");
}

#[test]
fn a_key_lost_in_one_write_with_a_pause_lets_the_next_in_after_the_pause() {
    for loss in [
        command!("DEL key"),
        // Redis 8.0 runs nothing after a plain FLUSHALL in the same turn.
        command!("FLUSHALL ASYNC"),
        command!("SWAPDB 0 1"),
    ] {
        let builder = Server::builder().alone();
        let server = builder.config("appendonly", "yes").start();
        let mut a = server.connect();
        cmd!(a, "LOCK.ACQUIRE key a 60000");
        let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
        a.pipeline(&[loss, command!("CLIENT PAUSE {PAUSE} WRITE")]);
        assert_eq!(text(&cmd!(a, "PING")), "PONG");
        assert_eq!(queue_of(&mut a, "key"), ["b"]);
        cmd!(a, "CLIENT UNPAUSE");
        granted(&mut b);
        assert_eq!(holders_of(&mut a, "key"), ["b"]);
    }
}

#[test]
fn a_release_in_one_write_with_a_pause_still_grants_the_waiter() {
    let (server, mut a) = held(60_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let pause = command!("CLIENT PAUSE {PAUSE} WRITE");
    a.pipeline(&[command!("LOCK.RELEASE key a"), pause]);
    granted(&mut b);
    cmd!(a, "CLIENT UNPAUSE");
}

#[test]
fn a_grant_lost_in_a_pause_is_undone_after_it() {
    let (server, mut a) = held(60_000);
    let b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    a.pipeline(&[
        command!("LOCK.RELEASE key a"),
        command!("CLIENT", "KILL", "ID", b.client_id()),
        command!("CLIENT PAUSE {PAUSE} WRITE"),
    ]);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
    cmd!(a, "CLIENT UNPAUSE");
    granted(&mut c);
    assert_eq!(holders_of(&mut a, "key"), ["c"]);
}

#[test]
fn hand_offs_after_a_pause_are_in_the_append_only_file() {
    let (mut server, mut a) = held(1_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    cmd!(a, "CLIENT PAUSE 2000 WRITE");
    let token = granted(&mut b);
    let fact = hold_of(&mut a, "key", "b").unwrap().facts();
    assert_eq!(fact.3, token);
    server.sigkill();
    server.start_again();
    let lock = lock_info(&mut server.connect(), "key").unwrap();
    assert_eq!(lock.facts(), [fact]);
}

#[test]
fn a_shutdown_closes_the_connections_of_waiters_and_keeps_the_locks() {
    for how in [Shutdown::Save, Shutdown::NoSave] {
        let (mut server, _) = held(60_000);
        let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
        server.restart(how);
        assert_error(b.try_recv(), "connection closed");
        let mut a = server.connect();
        assert_eq!(holders_of(&mut a, "key"), ["a"]);
        assert!(queue_of(&mut a, "key").is_empty());
        // No earlier request is waiting any more.
        assert_eq!(int(&cmd!(a, "LOCK.RELEASE key a")), 0);
        assert!(lock_info(&mut a, "key").is_none());
    }
}

#[test]
fn a_shutdown_that_waits_for_a_replica_hands_nothing_over_and_does_not_crash() {
    let (mut primary, mut a) = with_aof();
    let replica = primary.start_replica();
    cmd!(a, "CONFIG SET shutdown-timeout 4");
    cmd!(a, "LOCK.ACQUIRE key a 1500");
    let mut b = waiter!(primary, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(primary, "LOCK.ACQUIRE key c 60000 WAIT 1300");
    // The replica lags, so the shutdown waits for it; the lease and a limit end meanwhile.
    replica.stop_signal();
    cmd!(a, "SET unheard of");
    primary.terminate();
    replica.cont_signal();
    assert!(b.try_recv().is_err());
    drop(c.try_recv());
}

#[test]
fn all_waiters_that_a_pause_held_back_are_granted_as_soon_as_it_is_over() {
    const KEYS: usize = 20_000;
    let (server, mut conn) = Server::builder()
        .alone()
        .module_arg("mail-timeout", "60000")
        .start_connected();
    let acquire = |n| command!("LOCK.ACQUIRE key:{n} a 600000");
    conn.pipeline(&(0..KEYS).map(acquire).collect::<Vec<_>>());
    let wait = |n| request!("box", 0, "LOCK.ACQUIRE key:{n} b 600000");
    let began = Instant::now();
    conn.pipeline(&(0..KEYS).map(wait).collect::<Vec<_>>());
    // A grant takes about as long as a request. A slice of some hundred keys each 50 ms would take ten times as long.
    let soon = 5 * began.elapsed();
    let mut changes: Vec<_> = (0..KEYS).map(|n| command!("DEL key:{n}")).collect();
    changes.insert(0, command!("MULTI"));
    changes.push(command!("CLIENT PAUSE {PAUSE} WRITE"));
    changes.push(command!("EXEC"));
    conn.pipeline(&changes);
    server.await_gauge("held_back", KEYS as i64);
    cmd!(conn, "CLIENT UNPAUSE");
    let since = Instant::now();
    server.await_gauge("total_handoffs", KEYS as i64);
    let took = since.elapsed();
    assert!(took < soon, "{took:?} of {soon:?}");
}
