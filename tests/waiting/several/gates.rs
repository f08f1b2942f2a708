//! The grant of a waiting LOCK.MACQUIRE is a write: whenever writes are refused, it gets none of its keys.

use std::fs;

use mortise_harness::{
    Conn, Server, cmd, eventually, granted, hold_of, holders_of, int, lock_info, queue_of, text,
    waiter,
};

use super::{A, B, C, nobody_waits, several};

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
    cmd!(conn, "LOCK.ACQUIRE", B, "first", 60_000);
    let m = server.waiter(&several("m", &[A, B, C], &["WAIT", "0"]));
    // A pass may shorten a lease.
    cmd!(conn, "LOCK.PASS", B, "first", "h", 1_500);
    (conn, m)
}

#[test]
fn with_too_few_replicas_nothing_is_granted_and_later_all_keys() {
    let server = Server::start();
    let (mut conn, mut m) = scene(&server);
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
    nothing_is_granted(&server, &mut conn);
    let error = conn.try_run(&several("x", &[A], &[])).unwrap_err();
    assert!(error.starts_with("NOREPLICAS "), "{error}");
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 0);
    all_is_granted(&server, &mut conn, &mut m);
}

#[test]
fn writes_refused_between_the_last_check_and_the_grant_delay_it() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", B, "h", 60_000);
    let mut m = server.waiter(&several("m", &[A, B, C], &["WAIT", "0"]));
    // The release would grant it at the end of the turn, but by then writes are refused.
    conn.pipeline(&[
        mortise_harness::command!("LOCK.RELEASE", B, "h"),
        mortise_harness::command!("CONFIG", "SET", "min-replicas-to-write", 1),
    ]);
    eventually("it is held back", || server.gauge("held_back") > 0);
    for key in [A, B, C] {
        assert!(holders_of(&mut conn, key).is_empty());
    }
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 0);
    all_is_granted(&server, &mut conn, &mut m);
}

#[test]
fn a_request_that_times_out_while_writes_are_refused_leaves_the_queues() {
    let server = Server::start();
    let (mut conn, mut m) = scene(&server);
    let mut w = waiter!(server, "LOCK.ACQUIRE", C, "w", 60_000, "WAIT", 0);
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 1);
    eventually("the lease is over", || hold_of(&mut conn, B, "h").is_none());
    cmd!(conn, "CLIENT", "UNBLOCK", m.client_id(), "ERROR");
    assert!(m.try_recv().unwrap_err().starts_with("UNBLOCKED "));
    assert_eq!(queue_of(&mut conn, C), ["w"]);
    assert!(queue_of(&mut conn, A).is_empty());
    cmd!(conn, "CONFIG", "SET", "min-replicas-to-write", 0);
    granted(&mut w);
    nobody_waits(&server, &[A, B, C]);
}

#[test]
fn while_writes_are_paused_nothing_is_granted_and_later_all_keys() {
    for mode in ["WRITE", "ALL"] {
        let server = Server::start();
        let (mut conn, mut m) = scene(&server);
        cmd!(conn, "CLIENT", "PAUSE", 2_500, mode);
        if mode == "WRITE" {
            nothing_is_granted(&server, &mut conn);
            cmd!(conn, "CLIENT", "UNPAUSE");
        }
        all_is_granted(&server, &mut conn, &mut m);
    }
}

#[test]
fn after_a_failed_save_nothing_is_granted_and_later_all_keys() {
    let server = Server::builder().config("save", "3600 1000000").start();
    let (mut conn, mut m) = scene(&server);
    let dump = server.dir().join("dump.rdb");
    fs::create_dir(&dump).unwrap();
    cmd!(conn, "BGSAVE");
    eventually("the save has failed", || {
        server.info("persistence")["rdb_last_bgsave_status"] == "err"
    });
    nothing_is_granted(&server, &mut conn);
    fs::remove_dir(&dump).unwrap();
    cmd!(conn, "BGSAVE");
    all_is_granted(&server, &mut conn, &mut m);
}

#[test]
fn lack_of_memory_refuses_a_new_request_and_no_grant() {
    let server = Server::start();
    let (mut conn, mut m) = scene(&server);
    cmd!(conn, "CONFIG", "SET", "maxmemory", 1);
    for more in [&[][..], &["WAIT", "0"]] {
        let error = conn.try_run(&several("x", &[A, B], more)).unwrap_err();
        assert!(error.starts_with("OOM "), "{error}");
    }
    all_is_granted(&server, &mut conn, &mut m);
}

#[test]
fn a_server_whose_internal_command_fails_tries_again() {
    let server = Server::start_alone();
    server.load_actor();
    let (mut conn, mut m) = scene(&server);
    // For a call with several keys, the first argument is the first key.
    cmd!(conn, "ACTOR.BREAK", "LOCK.SETTLE", A);
    eventually("the lease is over", || hold_of(&mut conn, B, "h").is_none());
    eventually("the failure is logged", || {
        server.log().contains("tried again later")
    });
    for key in [A, B, C] {
        assert!(holders_of(&mut conn, key).is_empty());
    }
    assert_eq!(text(&cmd!(conn, "ACTOR.MEND")), "OK");
    all_is_granted(&server, &mut conn, &mut m);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", A, "m")), 0);
}
