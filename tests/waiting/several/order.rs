//! First come, first served, over every key that a LOCK.MACQUIRE names.

use mortise_harness::{Server, cmd, command, granted, int, is_nil, lock_info, mail, waiter};

use super::{A, B, C, by_mail, nobody_waits, release};

#[test]
fn nobody_overtakes_it_at_any_key_and_it_holds_nothing_while_it_waits() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE {A} h 60000");
    let mut m = waiter!(server, "LOCK.MACQUIRE m 60000 2 {A} {B} WAIT 0");
    let info = lock_info(&mut conn, B).unwrap();
    assert_eq!((&*info.mode, info.holders, info.waiters), ("none", 0, 1));
    assert_eq!(int(&cmd!(conn, "EXISTS {B}")), 0);
    let waiting = &info.queue[0];
    assert_eq!(
        (waiting.keys, waiting.left, waiting.client),
        (2, -1, m.client_id())
    );
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE {B} x 60000")));
    assert!(is_nil(&cmd!(conn, "LOCK.RLOCK {B} x 60000")));
    assert!(is_nil(&cmd!(conn, "LOCK.MACQUIRE x 60000 1 {B}")));
    assert!(is_nil(&cmd!(conn, "LOCK.MACQUIRE x 60000 2 {B} {C}")));
    let mut r = waiter!(server, "LOCK.RLOCK {B} r 60000 WAIT 0");
    let mut n = waiter!(server, "LOCK.MACQUIRE n 60000 2 {B} {C} WAIT 0");
    let mut w = waiter!(server, "LOCK.ACQUIRE {C} w 60000 WAIT 0");
    release(&mut conn, "h", &[A]);
    let token = granted(&mut m);
    release(&mut conn, "m", &[B]);
    let next = granted(&mut r);
    assert!(next > token);
    release(&mut conn, "r", &[B]);
    let last = granted(&mut n);
    assert!(last > next);
    release(&mut conn, "n", &[C]);
    assert!(granted(&mut w) > last);
    release(&mut conn, "n", &[B]);
    release(&mut conn, "m", &[A]);
    nobody_waits(&server, &[A, B, C]);
}

#[test]
fn the_end_of_a_lease_grants_it_and_the_end_of_its_own_leases_the_next() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE {B} h 200");
    cmd!(conn, "LOCK.RLOCK {C} r 300");
    let short = command!("LOCK.MACQUIRE m 200 3 {A} {B} {C} WAIT 0");
    let mut m = server.waiter(&short);
    let mut n = waiter!(server, "LOCK.MACQUIRE n 60000 3 {C} {B} {A} WAIT 0");
    let token = granted(&mut m);
    assert!(granted(&mut n) > token);
    nobody_waits(&server, &[A, B, C]);
}

#[test]
fn blocked_requests_and_those_by_mail_stand_in_one_queue_at_every_key() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE {A} h 60000");
    by_mail(&mut conn, "m1", &[A, B]);
    let mut m2 = waiter!(server, "LOCK.MACQUIRE m2 60000 2 {B} {A} WAIT 0");
    by_mail(&mut conn, "m3", &[A, B]);
    release(&mut conn, "h", &[A]);
    let mail = mail!(conn, "{{k}}box WAIT 2000");
    assert_eq!(mail.results(), [("m1", "granted")]);
    release(&mut conn, "m1", &[A, B]);
    granted(&mut m2);
    release(&mut conn, "m2", &[A, B]);
    let number = mail.only().number;
    let mail = mail!(conn, "{k}box", "AFTER", mail.since, number, "WAIT", 2_000);
    assert_eq!(mail.results(), [("m3", "granted")]);
    assert_eq!(mail.only().keys.as_ref().unwrap(), &[A, B]);
    nobody_waits(&server, &[A, B]);
}
