//! Another module takes the server's global lock on its own thread and calls commands there: ours, and the server's on keys
//! that others wait for. Waiters are granted at once, as if a client had sent the commands.

use mortise_harness::{
    Server, assert_error, cmd, eventually, holders_of, int, is_nil, lock_info, text, try_cmd,
    waiter,
};

fn server() -> Server {
    let server = Server::start_alone();
    server.load_actor();
    server
}

#[test]
fn a_release_on_a_thread_hands_the_lock_over() {
    let server = server();
    let mut conn = server.connect();
    let first = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000"));
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    assert_eq!(int(&cmd!(conn, "ACTOR.THREAD LOCK.RELEASE key a")), 0);
    let second = int(&b.recv());
    assert!(second > first);
    // LEAVE, which grants the last waiter.
    assert_eq!(int(&cmd!(conn, "ACTOR.THREAD LOCK.LEAVE key b")), 1);
    assert!(int(&c.recv()) > second);
}

#[test]
fn a_key_that_a_thread_removes_is_granted_to_the_waiter() {
    for take_away in [
        "DEL key",
        "UNLINK key",
        "RENAME key other",
        "MOVE key 1",
        "FLUSHALL",
        "SWAPDB 0 1",
    ] {
        let server = server();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE key a 60000");
        let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
        cmd!(conn, "ACTOR.THREAD {take_away}");
        assert!(int(&b.recv()) > 0, "{take_away}");
        assert_eq!(holders_of(&mut conn, "key"), ["b"], "{take_away}");
    }
}

#[test]
fn a_key_that_a_thread_overwrites_refuses_the_waiter() {
    let server = server();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    cmd!(conn, "ACTOR.THREAD SET key value");
    assert_error(b.try_recv(), "WRONGTYPE ");
    assert_eq!(text(&cmd!(conn, "GET key")), "value");
}

#[test]
fn every_command_works_on_a_thread() {
    let server = server();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "ACTOR.THREAD LOCK.ACQUIRE key a 60000"));
    let renewed = cmd!(conn, "ACTOR.THREAD LOCK.RENEW key a 90000");
    assert_eq!(int(&renewed), token);
    let fenced = cmd!(conn, "ACTOR.THREAD", "LOCK.FENCE", "key", "a", token + 5);
    assert_eq!(int(&fenced), token + 5);
    let guarded = cmd!(conn, "ACTOR.THREAD", "LOCK.GUARD", "key", "a", token + 5);
    assert_eq!(int(&guarded), token + 5);
    // Nothing can block there.
    let busy = cmd!(conn, "ACTOR.THREAD LOCK.ACQUIRE key b 60000 WAIT 0");
    assert!(is_nil(&busy));
    cmd!(conn, "ACTOR.THREAD LOCK.INFO key");
    cmd!(conn, "ACTOR.THREAD LOCK.TOP");
    cmd!(conn, "ACTOR.THREAD LOCK.MAIL box WAIT 0");
    let queued = try_cmd!(
        conn,
        "ACTOR.THREAD LOCK.ACQUIRE key b 60000 WAIT 0 MAIL box HOLDS 1"
    );
    assert!(queued.is_ok(), "{queued:?}");
    let released = cmd!(conn, "ACTOR.THREAD LOCK.RELEASE key a");
    assert_eq!(int(&released), 0);
    eventually("the request by mail is granted", || {
        holders_of(&mut conn, "key") == ["b"]
    });
}

#[test]
fn a_lease_that_a_thread_acquired_ends_in_time_for_the_waiter() {
    let server = server();
    let mut conn = server.connect();
    cmd!(conn, "ACTOR.THREAD LOCK.ACQUIRE key a 500");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    assert!(int(&b.recv()) > 0);
    assert_eq!(lock_info(&mut conn, "key").expect("b holds").holders, 1);
}
