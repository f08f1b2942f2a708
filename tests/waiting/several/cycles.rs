//! A request overtakes a LOCK.MACQUIRE only to prevent a deadlock.

use mortise_harness::{
    Conn, Server, array, cmd, command, granted, holders_of, int, is_nil, mail, queue_of, queued,
    try_cmd, waiter,
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
fn an_owner_that_is_passed_a_hold_is_let_past_who_waits_for_it() {
    for owner in ["task##1", "task##2"] {
        let (server, mut conn, mut m) = scene();
        let mut task = waiter!(server, "LOCK.ACQUIRE", B, "task##1", 60_000, "WAIT", 0);
        int(&cmd!(conn, "LOCK.PASS", A, "h", owner, 60_000));
        granted(&mut task);
        release(&mut conn, "task##1", &[B]);
        release(&mut conn, owner, &[A]);
        granted(&mut m);
        nobody_waits(&server, &[A, B]);
    }
}

#[test]
fn a_request_in_no_cycle_does_not_overtake() {
    let (_server, mut conn, _m) = scene();
    for mode in ["LOCK.ACQUIRE", "LOCK.RLOCK"] {
        assert!(is_nil(&cmd!(conn, mode, B, "x", 60_000)));
    }
    // Holding another key, which nobody requests, does not help.
    cmd!(conn, "LOCK.ACQUIRE", C, "x", 60_000);
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", B, "x", 60_000)));
    assert!(is_nil(&conn.run(&several("y", &[B, Z], &[]))));
}

#[test]
fn a_holder_that_has_to_wait_for_another_owner_stands_ahead() {
    let (server, mut conn, mut m) = scene();
    cmd!(conn, "LOCK.ACQUIRE", Z, "o", 60_000);
    // Another request at b waits for o.
    let mut n = server.waiter(&several("n", &[B, Z], &["WAIT", "0"]));
    assert_eq!(queue_of(&mut conn, B), ["m", "n"]);
    // o passes n, which waits for o, to the head of the queue.
    int(&cmd!(conn, "LOCK.ACQUIRE", B, "o", 60_000));
    let mut h = waiter!(server, "LOCK.ACQUIRE", B, "h", 60_000, "WAIT", 0);
    assert_eq!(queue_of(&mut conn, B), ["h", "m", "n"]);
    cmd!(conn, "LOCK.RELEASE", B, "o");
    granted(&mut h);
    release(&mut conn, "h", &[A, B]);
    granted(&mut m);
    release(&mut conn, "m", &[A, B]);
    cmd!(conn, "LOCK.RELEASE", Z, "o", "ALL");
    granted(&mut n);
    nobody_waits(&server, &[A, B, Z]);
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
fn a_request_for_several_in_that_place_moves_ahead_in_all_its_queues() {
    let (server, mut conn, mut m) = scene();
    cmd!(conn, "LOCK.ACQUIRE", Z, "n", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", C, "x", 60_000);
    // c is held, and a request waits there already.
    let mut c = waiter!(server, "LOCK.ACQUIRE", C, "c", 60_000, "WAIT", 0);
    let mut n = server.waiter(&several("n", &[B, C], &["WAIT", "0"]));
    assert_eq!(queue_of(&mut conn, B), ["m", "n"]);
    assert_eq!(queue_of(&mut conn, C), ["c", "n"]);
    // h waits for n at z; n stands behind m at b; m waits for h at a.
    let mut h = waiter!(server, "LOCK.ACQUIRE", Z, "h", 60_000, "WAIT", 0);
    assert_eq!(queue_of(&mut conn, B), ["n", "m"]);
    assert_eq!(queue_of(&mut conn, C), ["n", "c"]);
    release(&mut conn, "x", &[C]);
    granted(&mut n);
    release(&mut conn, "n", &[Z, B]);
    granted(&mut h);
    release(&mut conn, "h", &[Z, A]);
    granted(&mut m);
    release(&mut conn, "n", &[C]);
    granted(&mut c);
    nobody_waits(&server, &[A, B, C, Z]);
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
fn a_real_deadlock_is_still_refused() {
    // Its owner holds z, and the holder of a waits for z.
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", A, "p", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", Z, "o", 60_000);
    let mut p = waiter!(server, "LOCK.ACQUIRE", Z, "p", 60_000, "WAIT", 0);
    for more in [&["WAIT", "0"][..], &["WAIT", "0", "MAIL", "{k}box"]] {
        deadlock(&mut conn, &several("o", &[B, A], more), &[A, Z]);
        assert_eq!(queue_of(&mut conn, A), [""; 0]);
        assert_eq!(queue_of(&mut conn, B), [""; 0]);
    }
    assert!(is_nil(&conn.run(&several("o", &[B, A], &[]))));
    assert_eq!(server.gauge("total_deadlocks"), 2);
    assert_eq!(server.gauge("waiters"), 1);
    release(&mut conn, "o", &[Z]);
    granted(&mut p);
    // The other order: the request waits, and then the holder of a requests z.
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", A, "p", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", Z, "o", 60_000);
    let mut o = server.waiter(&several("o", &[B, A], &["WAIT", "0"]));
    let asks = command!("LOCK.RLOCK", Z, "p", 60_000, "WAIT", 0);
    deadlock(&mut conn, &asks, &[A, Z]);
    release(&mut conn, "p", &[A]);
    granted(&mut o);
    nobody_waits(&server, &[A, B, Z]);
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

#[test]
fn two_requests_for_several_never_wait_for_each_other() {
    let server = Server::start();
    let mut conn = server.connect();
    for key in [A, B, C] {
        cmd!(conn, "LOCK.ACQUIRE", key, "h", 60_000);
    }
    let orders = [[A, B, C], [C, B, A], [B, A, C], [C, A, B]];
    let mut waiters: Vec<_> = (0..8)
        .map(|n| server.waiter(&several(&format!("m{n}"), &orders[n % 4], &["WAIT", "0"])))
        .collect();
    let expected: Vec<String> = (0..8).map(|n| format!("m{n}")).collect();
    for key in [A, B, C] {
        assert_eq!(queue_of(&mut conn, key), expected);
    }
    release(&mut conn, "h", &[B, A, C]);
    for (n, waiter) in waiters.iter_mut().enumerate() {
        granted(waiter);
        for key in [A, B, C] {
            assert_eq!(holders_of(&mut conn, key), [format!("m{n}")]);
        }
        release(&mut conn, &format!("m{n}"), &[C, A, B]);
    }
    nobody_waits(&server, &[A, B, C]);
}

#[test]
fn owners_of_one_task_count_as_one() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", A, "t##1", 60_000);
    let mut m = server.waiter(&several("m", &[A, B], &["WAIT", "0"]));
    // Another name of the task that holds a takes b.
    int(&cmd!(conn, "LOCK.ACQUIRE", B, "t##2", 60_000));
    // Its task holds a, and m waits for a: no deadlock, so it moves ahead of m. Its task's own hold at b does not count.
    let mut n = server.waiter(&several("t##3", &[B, C], &["WAIT", "0"]));
    assert_eq!(queue_of(&mut conn, B), ["t##3", "m"]);
    release(&mut conn, "t##2", &[B]);
    granted(&mut n);
    release(&mut conn, "t##3", &[B, C]);
    release(&mut conn, "t##1", &[A]);
    granted(&mut m);
    nobody_waits(&server, &[A, B, C]);
    // A real deadlock, through two names.
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", Z, "t##1", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", A, "p", 60_000);
    let _p = waiter!(server, "LOCK.ACQUIRE", Z, "p", 60_000, "WAIT", 0);
    deadlock(
        &mut conn,
        &several("t##2", &[A, B], &["WAIT", "0"]),
        &[A, Z],
    );
    assert!(try_cmd!(conn, "LOCK.ACQUIRE", A, "t##3", 60_000, "WAIT", 0).is_err());
}
