//! A key that cannot be settled though the server accepts writes delays no other key, and is settled once that is possible.

use std::time::{Duration, Instant};

use mortise_harness::{Server, cmd, eventually, granted, holders_of, int, lock_info, send, waiter};

fn server() -> Server {
    let server = Server::start();
    server.load_actor();
    server
}

/// Makes settling `key` fail from now on, as by a fault of the module.
fn break_key(server: &Server, key: &str) {
    cmd!(server.connect(), "ACTOR.BREAK LOCK.SETTLE {key}");
}

#[test]
fn a_key_that_fails_delays_no_other_key() {
    let server = server();
    let mut conn = server.connect();
    // The failing key comes first by name, and so does its lease.
    cmd!(conn, "LOCK.ACQUIRE {{k}}a owner 2000");
    for n in 0..10 {
        cmd!(conn, "LOCK.ACQUIRE {{k}}b{n} owner 3000");
    }
    break_key(&server, "{k}a");
    let mut bad = waiter!(server, "LOCK.ACQUIRE {{k}}a next 60000 WAIT 0");
    let mut others: Vec<_> = (0..5)
        .map(|n| {
            let key = format!("{{k}}b{n}");
            waiter!(server, "LOCK.ACQUIRE {key} next 60000 WAIT 0")
        })
        .collect();
    // Keys with waiters are handed over,
    for other in &mut others {
        granted(other);
    }
    // and the others are swept.
    eventually("all others are swept", || {
        (5..10).all(|n| int(&cmd!(conn, "EXISTS {{k}}b{n}")) == 0)
    });
    assert_eq!(lock_info(&mut conn, "{k}a").expect("one waits").waiters, 1);
    let log = server.log();
    let said = log.lines().filter(|line| line.contains("'{k}a'"));
    assert_eq!(said.count(), 1, "{log}");
    cmd!(conn, "ACTOR.MEND");
    granted(&mut bad);
    assert_eq!(holders_of(&mut conn, "{k}a"), ["next"]);
}

#[test]
fn a_key_that_fails_while_nobody_waits_is_swept_once_it_can_be() {
    let server = server();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE {{k}}a owner 50");
    cmd!(conn, "LOCK.ACQUIRE {{k}}b owner 100");
    break_key(&server, "{k}a");
    eventually("the other one is swept", || {
        int(&cmd!(conn, "EXISTS {{k}}b")) == 0
    });
    assert_eq!(int(&cmd!(conn, "EXISTS {{k}}a")), 1);
    cmd!(conn, "ACTOR.MEND");
    eventually("it is swept, too", || {
        int(&cmd!(conn, "EXISTS {{k}}a")) == 0
    });
}

#[test]
fn a_command_serves_a_key_that_timers_could_not_settle() {
    let server = server();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE key a 2000");
    let mut b = server.connect();
    send!(b, "LOCK.ACQUIRE key b 60000 WAIT 0");
    server.await_blocked(&b);
    break_key(&server, "key");
    eventually("a timer has tried", || {
        server.log().contains("'key' in database 0 cannot be")
    });
    // Any command that opens the key settles it.
    cmd!(conn, "LOCK.RENEW key nobody 1000");
    granted(&mut b);
}

#[test]
fn a_failing_lock_that_goes_is_forgotten() {
    let server = server();
    let mut conn = server.connect();
    let failures = || {
        server
            .log()
            .matches("'key' in database 0 cannot be")
            .count()
    };
    for times in 1..3 {
        cmd!(conn, "LOCK.ACQUIRE key a 50");
        break_key(&server, "key");
        // Each failure is logged, because nothing is known of the last one any more.
        eventually("it fails", || failures() == times);
        assert_eq!(server.gauge("held_back"), 1);
        cmd!(conn, "DEL key");
        cmd!(conn, "ACTOR.MEND");
        server.await_gauge("held_back", 0);
    }
}

#[test]
fn a_key_that_fails_again_and_again_is_tried_once_a_second() {
    let server = server();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    break_key(&server, "key");
    cmd!(conn, "DEL key");
    let mut since = None;
    eventually("it has failed four times", || {
        let failures = int(&cmd!(conn, "ACTOR.FAILED"));
        if failures > 0 {
            since.get_or_insert_with(Instant::now);
        }
        failures >= 4
    });
    let took = since.expect("the first failure").elapsed();
    assert!(took > Duration::from_secs(2), "{took:?}");
    cmd!(conn, "ACTOR.MEND");
    // So is the request that came meanwhile.
    cmd!(conn, "LOCK.RENEW key nobody 1000");
    granted(&mut b);
}

#[test]
fn a_key_that_was_settled_since_is_logged_and_tried_soon_when_it_fails_again() {
    let server = server();
    let mut conn = server.connect();
    for round in 1..=2 {
        cmd!(conn, "LOCK.ACQUIRE key a 60000");
        let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
        break_key(&server, "key");
        cmd!(conn, "DEL key");
        eventually("the log says so", || {
            let log = server.log();
            log.lines().filter(|line| line.contains("'key'")).count() == round
        });
        cmd!(conn, "ACTOR.MEND");
        granted(&mut b);
        cmd!(conn, "LOCK.RELEASE key b");
    }
}
