//! The grant of a waiting LOCK.MACQUIRE is a write: whenever writes are refused, it gets none of its keys.

use mortise_harness::{
    Conn, Server, assert_error, cmd, command, eventually, granted, hold_of, holders_of, int,
    lock_info, queue_of, refused, text, waiter,
};

use super::{A, B, C, nobody_waits};

/// Waits for the end of `h`'s lease at `b` while writes are refused, and checks that nothing is granted.
#[track_caller]
fn nothing_is_granted(server: &Server, conn: &mut Conn) {
    eventually("the lease is over", || hold_of(conn, B, "h").is_none());
    eventually("it is held back", || server.gauge("held_back") > 0);
    for key in [A, B, C] {
        let info = lock_info(conn, key).unwrap();
        assert_eq!((info.holders, info.waiters), (0, 1), "{key}");
    }
}

#[track_caller]
fn all_is_granted(server: &Server, conn: &mut Conn, m: &mut Conn) {
    let token = granted(m);
    for key in [A, B, C] {
        assert_eq!(hold_of(conn, key, "m").unwrap().token, token);
    }
    nobody_waits(server, &[A, B, C]);
}

fn scene(server: &Server) -> (Conn, Conn) {
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE {B} first 60000");
    let m = waiter!(server, "LOCK.MACQUIRE m 60000 3 {A} {B} {C} WAIT 0");
    // A pass may shorten a lease.
    cmd!(conn, "LOCK.PASS {B} first h 1500");
    (conn, m)
}

#[test]
fn with_too_few_replicas_nothing_is_granted_and_later_all_keys() {
    let server = Server::start();
    let (mut conn, mut m) = scene(&server);
    cmd!(conn, "CONFIG SET min-replicas-to-write 1");
    nothing_is_granted(&server, &mut conn);
    refused!(conn, "NOREPLICAS ", "LOCK.MACQUIRE x 60000 1 {A}");
    cmd!(conn, "CONFIG SET min-replicas-to-write 0");
    all_is_granted(&server, &mut conn, &mut m);
}

#[test]
fn writes_refused_between_the_last_check_and_the_grant_delay_it() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
    let mut m = waiter!(server, "LOCK.MACQUIRE m 60000 3 {A} {B} {C} WAIT 0");
    // The release would grant it at the end of the turn, but by then writes are refused.
    conn.pipeline(&[
        command!("LOCK.RELEASE {B} h"),
        command!("CONFIG SET min-replicas-to-write 1"),
    ]);
    eventually("it is held back", || server.gauge("held_back") > 0);
    for key in [A, B, C] {
        assert!(holders_of(&mut conn, key).is_empty());
    }
    cmd!(conn, "CONFIG SET min-replicas-to-write 0");
    all_is_granted(&server, &mut conn, &mut m);
}

#[test]
fn a_request_that_times_out_while_writes_are_refused_leaves_the_queues() {
    let server = Server::start();
    let (mut conn, mut m) = scene(&server);
    let mut w = waiter!(server, "LOCK.ACQUIRE {C} w 60000 WAIT 0");
    cmd!(conn, "CONFIG SET min-replicas-to-write 1");
    eventually("the lease is over", || hold_of(&mut conn, B, "h").is_none());
    cmd!(conn, "CLIENT", "UNBLOCK", m.client_id(), "ERROR");
    assert_error(m.try_recv(), "UNBLOCKED ");
    assert_eq!(queue_of(&mut conn, C), ["w"]);
    assert!(queue_of(&mut conn, A).is_empty());
    cmd!(conn, "CONFIG SET min-replicas-to-write 0");
    granted(&mut w);
    nobody_waits(&server, &[A, B, C]);
}

#[test]
fn lack_of_memory_refuses_a_new_request_and_no_grant() {
    let server = Server::start();
    let (mut conn, mut m) = scene(&server);
    cmd!(conn, "CONFIG SET maxmemory 1");
    for way in ["", "WAIT 0"] {
        refused!(conn, "OOM ", "LOCK.MACQUIRE x 60000 2 {A} {B} {way}");
    }
    all_is_granted(&server, &mut conn, &mut m);
}

#[test]
fn a_server_whose_internal_command_fails_tries_again() {
    let server = Server::start_alone();
    server.load_actor();
    let (mut conn, mut m) = scene(&server);
    // For a call with several keys, the first argument is the first key.
    cmd!(conn, "ACTOR.BREAK LOCK.SETTLE {A}");
    eventually("the lease is over", || hold_of(&mut conn, B, "h").is_none());
    eventually("the failure is logged", || {
        server.log().contains("tried again later")
    });
    for key in [A, B, C] {
        assert!(holders_of(&mut conn, key).is_empty());
    }
    assert_eq!(text(&cmd!(conn, "ACTOR.MEND")), "OK");
    all_is_granted(&server, &mut conn, &mut m);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE {A} m")), 0);
}
