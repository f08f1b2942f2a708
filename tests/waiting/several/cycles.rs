//! A request overtakes a LOCK.MACQUIRE only to prevent a deadlock.

use mortise_harness::{
    Conn, Server, array, cmd, command, granted, int, is_nil, mail, queue_of, waiter,
};

use super::{A, B, C, nobody_waits, release};

const Z: &str = "{k}z";

/// `h` holds `a`, and `m` waits for `a` and `b`.
fn scene() -> (Server, Conn, Conn) {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE {A} h 60000");
    let waiter = waiter!(server, "LOCK.MACQUIRE m 60000 2 {A} {B} WAIT 0");
    (server, conn, waiter)
}

#[test]
fn a_holder_that_requests_the_next_key_is_let_past_whether_or_not_it_can_wait() {
    let ways = ["", "WAIT 0", "WAIT 0 MAIL {k}box HOLDS 1"];
    for mode in ["LOCK.ACQUIRE", "LOCK.RLOCK"] {
        for way in ways {
            let (server, mut conn, mut m) = scene();
            let token = int(&cmd!(conn, "{mode} {B} h 60000 {way}"));
            assert!(token > 0);
            assert_eq!(queue_of(&mut conn, B), ["m"]);
            release(&mut conn, "h", &[B, A]);
            granted(&mut m);
            nobody_waits(&server, &[A, B]);
        }
    }
    let (_server, mut conn, _m) = scene();
    let steps = [
        command!("MULTI"),
        command!("LOCK.ACQUIRE {B} h 60000 WAIT 0"),
        command!("LOCK.ACQUIRE {B} x 60000 WAIT 0"),
        command!("EXEC"),
    ];
    let replies = conn.pipeline(&steps);
    let replies = array(replies[3].as_ref().unwrap());
    int(&replies[0]);
    assert!(is_nil(&replies[1]));
    let (_server, mut conn, _m) = scene();
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], ARGV[1], 60000)";
    assert!(is_nil(&cmd!(conn, "EVAL", script, 1, B, "x")));
    int(&cmd!(conn, "EVAL", script, 1, B, "h"));
}

#[test]
fn three_parties_that_wait_blocked_meet_no_deadlock() {
    let (server, mut conn, mut m) = scene();
    cmd!(conn, "LOCK.ACQUIRE {C} y 60000");
    let mut y = waiter!(server, "LOCK.ACQUIRE {B} y 60000 WAIT 0");
    assert_eq!(queue_of(&mut conn, B), ["m", "y"]);
    let mut h = waiter!(server, "LOCK.ACQUIRE {C} h 60000 WAIT 0");
    granted(&mut y);
    release(&mut conn, "y", &[B, C]);
    granted(&mut h);
    release(&mut conn, "h", &[C, A]);
    granted(&mut m);
    nobody_waits(&server, &[A, B, C]);
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn a_new_request_for_several_in_that_place_moves_ahead_at_once() {
    let (server, mut conn, mut m) = scene();
    cmd!(conn, "LOCK.ACQUIRE {Z} n 60000");
    let mut h = waiter!(server, "LOCK.ACQUIRE {Z} h 60000 WAIT 0");
    // n would stand behind m at b; m waits for h at a; h waits for n at z.
    assert!(is_nil(&cmd!(conn, "LOCK.MACQUIRE other 60000 2 {B} {C}")));
    let token = int(&cmd!(conn, "LOCK.MACQUIRE n 60000 2 {C} {B}"));
    assert_eq!(queue_of(&mut conn, B), ["m"]);
    release(&mut conn, "n", &[B, C]);
    let mut blocked = server.connect();
    blocked.submit(&command!("LOCK.MACQUIRE n 60000 2 {C} {B} WAIT 0"));
    assert!(granted(&mut blocked) > token);
    release(&mut conn, "n", &[B, C]);
    let by_mail = "WAIT 0 MAIL {k}box";
    int(&cmd!(conn, "LOCK.MACQUIRE n 60000 2 {C} {B} {by_mail}"));
    assert!(mail!(conn, "{{k}}box").letters.is_empty());
    release(&mut conn, "n", &[B, C, Z]);
    granted(&mut h);
    release(&mut conn, "h", &[A]);
    granted(&mut m);
    nobody_waits(&server, &[A, B, C, Z]);
}
