//! A request overtakes a LOCK.MACQUIRE only to prevent a deadlock.

use mortise_harness::{
    Conn, Server, array, cmd, command, granted, holders_of, int, is_nil, mail, queue_of, queued,
    waiter,
};

use super::{A, B, C, nobody_waits, several};

const Z: &str = "{k}z";

/// `h` holds `a`, and `m` waits for `a` and `b`.
fn scene() -> (Server, Conn, Conn) {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", A, "h", 60_000);
    let waiter = server.waiter(&several("m", &[A, B], &["WAIT", "0"]));
    (server, conn, waiter)
}

#[track_caller]
fn deadlock(conn: &mut Conn, command: &mortise_harness::redis::Cmd, cycle: &[&str]) {
    let error = conn.try_run(command).unwrap_err();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    let mut named: Vec<&str> = error.split('\'').skip(1).step_by(2).collect();
    named.sort_unstable();
    assert_eq!(named, cycle, "{error}");
}

/// `owner` releases what it holds at these keys.
#[track_caller]
fn release(conn: &mut Conn, owner: &str, keys: &[&str]) {
    for key in keys {
        assert_eq!(
            int(&cmd!(conn, "LOCK.RELEASE", key, owner)),
            0,
            "{key} of {owner}"
        );
    }
}

#[test]
fn a_holder_that_requests_the_next_key_is_let_past_whether_or_not_it_can_wait() {
    let ways: [&[&str]; 3] = [
        &[],
        &["WAIT", "0"],
        &["WAIT", "0", "MAIL", "{k}box", "HOLDS", "1"],
    ];
    for mode in ["LOCK.ACQUIRE", "LOCK.RLOCK"] {
        for way in ways {
            let (server, mut conn, mut m) = scene();
            let token = int(&cmd!(conn, mode, B, "h", 60_000, way));
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
        command!("LOCK.ACQUIRE", B, "h", 60_000, "WAIT", 0),
        command!("LOCK.ACQUIRE", B, "x", 60_000, "WAIT", 0),
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
    cmd!(conn, "LOCK.ACQUIRE", C, "y", 60_000);
    let mut y = waiter!(server, "LOCK.ACQUIRE", B, "y", 60_000, "WAIT", 0);
    assert_eq!(queue_of(&mut conn, B), ["m", "y"]);
    let mut h = waiter!(server, "LOCK.ACQUIRE", C, "h", 60_000, "WAIT", 0);
    granted(&mut y);
    release(&mut conn, "y", &[B, C]);
    granted(&mut h);
    release(&mut conn, "h", &[C, A]);
    granted(&mut m);
    nobody_waits(&server, &[A, B, C]);
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn three_parties_that_wait_by_mail_meet_no_deadlock() {
    let server = Server::start();
    let mut conn = server.connect();
    let by_mail = ["WAIT", "0", "MAIL", "{k}box"];
    cmd!(conn, "LOCK.ACQUIRE", A, "h", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", C, "y", 60_000);
    queued(&conn.run(&several("m", &[A, B], &by_mail)));
    queued(&cmd!(
        conn,
        "LOCK.RLOCK {B} y 60000 WAIT 0 MAIL {{k}}box HOLDS 1"
    ));
    queued(&cmd!(
        conn,
        "LOCK.ACQUIRE {C} h 60000 WAIT 0 MAIL {{k}}box HOLDS 1"
    ));
    let letters = mail!(conn, "{k}box", "WAIT", 2_000);
    assert_eq!(letters.results(), [("y", "granted")]);
    release(&mut conn, "y", &[C, B]);
    release(&mut conn, "h", &[A]);
    let letters = mail!(
        conn,
        "{k}box",
        "AFTER",
        letters.since,
        letters.letters[0].number,
        "WAIT",
        2_000
    );
    assert_eq!(letters.results()[0], ("h", "granted"));
    release(&mut conn, "h", &[C]);
    mortise_harness::eventually("m is granted", || holders_of(&mut conn, B) == ["m"]);
    assert_eq!(holders_of(&mut conn, A), ["m"]);
    assert_eq!(server.gauge("total_deadlocks"), 0);
}

#[test]
fn a_new_request_for_several_in_that_place_moves_ahead_at_once() {
    let (server, mut conn, mut m) = scene();
    cmd!(conn, "LOCK.ACQUIRE", Z, "n", 60_000);
    let mut h = waiter!(server, "LOCK.ACQUIRE", Z, "h", 60_000, "WAIT", 0);
    // n would stand behind m at b; m waits for h at a; h waits for n at z.
    assert!(is_nil(&conn.run(&several("other", &[B, C], &[]))));
    let token = int(&conn.run(&several("n", &[C, B], &[])));
    assert_eq!(queue_of(&mut conn, B), ["m"]);
    release(&mut conn, "n", &[B, C]);
    let mut blocked = server.connect();
    blocked.submit(&several("n", &[C, B], &["WAIT", "0"]));
    assert!(granted(&mut blocked) > token);
    release(&mut conn, "n", &[B, C]);
    let by_mail = ["WAIT", "0", "MAIL", "{k}box"];
    int(&conn.run(&several("n", &[C, B], &by_mail)));
    assert!(mail!(conn, "{{k}}box").letters.is_empty());
    release(&mut conn, "n", &[B, C, Z]);
    granted(&mut h);
    release(&mut conn, "h", &[A]);
    granted(&mut m);
    nobody_waits(&server, &[A, B, C, Z]);
}

#[test]
fn a_request_for_several_that_cannot_wait_leaves_nothing() {
    let (server, mut conn, mut m) = scene();
    // Even at the head it would have to wait, because c is held.
    cmd!(conn, "LOCK.ACQUIRE", C, "x", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", Z, "n", 60_000);
    let _h = waiter!(server, "LOCK.ACQUIRE", Z, "h", 60_000, "WAIT", 0);
    assert!(is_nil(&conn.run(&several("n", &[C, B], &[]))));
    assert_eq!(queue_of(&mut conn, B), ["m"]);
    assert_eq!(queue_of(&mut conn, C), [""; 0]);
    let steps = [
        command!("MULTI"),
        several("n", &[C, B], &["WAIT", "0"]),
        command!("EXEC"),
    ];
    let replies = conn.pipeline(&steps);
    assert!(is_nil(&array(replies[2].as_ref().unwrap())[0]));
    cmd!(conn, "LOCK.RELEASE", Z, "n");
    cmd!(conn, "LOCK.RELEASE", A, "h");
    granted(&mut m);
    release(&mut conn, "m", &[A, B]);
    assert_eq!(server.gauge("waiters"), 0);
}

#[test]
fn a_deadlock_is_refused_even_if_a_place_could_be_given_up() {
    let (server, mut conn, _m) = scene();
    // x waits for a, behind m and for h, which holds it.
    cmd!(conn, "LOCK.ACQUIRE", C, "x", 60_000);
    let mut x = waiter!(server, "LOCK.ACQUIRE", A, "x", 60_000, "WAIT", 0);
    // Standing ahead of m would not help, because h holds a.
    let asks = command!("LOCK.ACQUIRE", C, "h", 60_000, "WAIT", 0);
    deadlock(&mut conn, &asks, &[A, C]);
    release(&mut conn, "x", &[C]);
    cmd!(conn, "LOCK.LEAVE", A, "x");
    assert!(is_nil(&x.recv()));
}
