//! Waiting while nothing is granted: `lock.grace` after a start.

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::ClockStep::{Back, Forward};
use mortise_harness::{
    Server, Shutdown, assert_error, cmd, granted, hold_of, holders_of, int, is_nil, lock_info,
    queue_of, refused, waiter,
};

/// Long enough for a slow machine to queue requests; a cluster takes two seconds of it to start.
const GRACE: &str = "6000";

fn in_grace() -> Server {
    let server = Server::builder()
        .config("appendonly", "yes")
        .module_arg("grace", GRACE)
        .start();
    assert!(server.gauge("grace_left_ms") > 0);
    server
}

#[test]
fn requests_wait_during_the_grace_and_are_granted_in_order_at_its_end() {
    let server = in_grace();
    let mut conn = server.connect();
    let mut a = waiter!(server, "LOCK.ACQUIRE key a 60000 WAIT 0");
    let mut r1 = waiter!(server, "LOCK.RLOCK key r1 60000 WAIT 0");
    let mut r2 = waiter!(server, "LOCK.RLOCK key r2 60000 WAIT 0");
    let mut other = waiter!(server, "LOCK.RLOCK other a 60000 WAIT 0");
    let info = lock_info(&mut conn, "key").unwrap();
    assert_eq!((&*info.mode, info.holders, info.waiters), ("none", 0, 3));
    assert_eq!(int(&cmd!(conn, "EXISTS key")), 0);
    granted(&mut a);
    assert_eq!(server.gauge("grace_left_ms"), 0);
    granted(&mut other);
    assert_eq!(queue_of(&mut conn, "key"), ["r1", "r2"]);
    cmd!(a, "LOCK.RELEASE key a");
    granted(&mut r1);
    granted(&mut r2);
}

#[test]
fn a_wait_that_times_out_in_the_grace_gets_null() {
    let server = in_grace();
    let mut a = server.connect();
    let reply = cmd!(a, "LOCK.ACQUIRE key a 60000 WAIT 100");
    assert!(is_nil(&reply));
    assert!(is_nil(&cmd!(a, "LOCK.ACQUIRE key a 60000")));
    assert_eq!(server.gauge("waiters"), 0);
}

#[test]
fn a_known_hold_released_in_the_grace_lets_the_waiter_in_only_at_its_end() {
    let mut server = in_grace();
    let mut early = waiter!(server, "LOCK.ACQUIRE key a 600000 WAIT 0");
    let token = granted(&mut early);
    server.restart(Shutdown::AsConfigured);
    let mut conn = server.connect();
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, token);
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key a")), 0);
    assert_eq!(queue_of(&mut conn, "key"), ["b"]);
    assert!(server.gauge("grace_left_ms") > 0);
    assert!(granted(&mut b) > token);
    assert_eq!(server.gauge("grace_left_ms"), 0);
}

#[test]
fn a_reentry_and_an_upgrade_wait_until_the_grace_ends() {
    let mut server = in_grace();
    let mut write = waiter!(server, "LOCK.ACQUIRE key a 600000 WAIT 0");
    let mut read = waiter!(server, "LOCK.RLOCK other a 600000 WAIT 0");
    let token = granted(&mut write);
    granted(&mut read);
    server.restart(Shutdown::AsConfigured);
    let mut conn = server.connect();
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut reentry = waiter!(server, "LOCK.ACQUIRE key a 600000 WAIT 0");
    let mut upgrade = waiter!(server, "LOCK.WLOCK other a 600000 WAIT 0");
    assert_eq!(granted(&mut reentry), token);
    granted(&mut upgrade);
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().counts(), (2, 0));
    assert_eq!(hold_of(&mut conn, "other", "a").unwrap().counts(), (1, 1));
    assert_eq!(queue_of(&mut conn, "key"), ["b"]);
    cmd!(conn, "LOCK.RELEASE key a ALL");
    granted(&mut b);
}

#[test]
fn an_upgrade_whose_read_lease_ends_in_the_grace_gets_null_at_once() {
    let mut server = in_grace();
    let mut first = waiter!(server, "LOCK.RLOCK key a 600000 WAIT 0");
    let mut second = waiter!(server, "LOCK.RLOCK key b 5000 WAIT 0");
    granted(&mut first);
    granted(&mut second);
    server.set_module_arg("grace", "60000");
    server.restart(Shutdown::AsConfigured);
    let mut conn = server.connect();
    let mut upgrade = waiter!(server, "LOCK.WLOCK key b 60000 WAIT 0");
    // The end of a hold in the grace is handled, and so is the end of later ones.
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key a")), 0);
    assert!(is_nil(&upgrade.recv()));
    assert!(server.gauge("grace_left_ms") > 0);
    assert!(queue_of(&mut conn, "key").is_empty());
    assert_eq!(int(&cmd!(conn, "EXISTS key")), 0);
}

#[test]
fn a_waiter_that_leaves_in_the_grace_is_not_served_at_its_end() {
    let server = in_grace();
    let gone = waiter!(server, "LOCK.ACQUIRE key gone 60000 WAIT 0");
    let mut unblocked = waiter!(server, "LOCK.ACQUIRE key unblocked 60000 WAIT 0");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut conn = server.connect();
    drop(gone);
    cmd!(conn, "CLIENT", "UNBLOCK", unblocked.client_id(), "ERROR");
    assert_error(unblocked.try_recv(), "UNBLOCKED ");
    granted(&mut b);
    assert_eq!(holders_of(&mut conn, "key"), ["b"]);
}

#[test]
fn waiters_of_a_key_that_becomes_another_type_in_the_grace_get_wrongtype() {
    // The reply does not wait for the end of the grace.
    let server = Server::builder().config("lock.grace", "600000").start();
    let mut a = waiter!(server, "LOCK.ACQUIRE key a 60000 WAIT 0");
    cmd!(server.connect(), "SET key text");
    assert_error(a.try_recv(), "WRONGTYPE ");
    refused!(a, "WRONGTYPE ", "LOCK.ACQUIRE key a 60000");
}

#[test]
fn no_step_of_the_wall_clock_ends_or_extends_the_grace() {
    const HOUR: Duration = Duration::from_secs(3_600);
    thread::scope(|scope| {
        for step in [Forward(HOUR), Back(HOUR), Forward(24 * HOUR)] {
            scope.spawn(move || {
                let began = Instant::now();
                let server = Server::builder()
                    .clock_shim()
                    .module_arg("grace", "3000")
                    .start();
                let mut a = waiter!(server, "LOCK.ACQUIRE key a 60000 WAIT 0");
                let (asked, left) = (Instant::now(), server.gauge("grace_left_ms"));
                server.step_clock(step);
                granted(&mut a);
                let waited = asked.elapsed().as_millis() as i64;
                assert!(waited >= left - 1, "{waited} of {left} ms over {step:?}");
                // An error of the step would be an hour.
                assert!(began.elapsed() < Duration::from_secs(15), "{step:?}");
            });
        }
    });
}
