//! Commands inside a guard that change locks, even the guard's own.

use mortise_harness::{
    Conn, Server, array, assert_error, cmd, granted, hold_of, holders_of, int, is_nil, lock_info,
    queue_of, refused, try_cmd, waiter,
};

use super::{assert_not_held, guard, held};

/// `a` holds `key`, and `b` waits for it.
fn scene() -> (Server, Conn, i64, Conn) {
    let (server, mut a) = Server::start_connected();
    let token = held(&mut a, "key");
    let b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    (server, a, token, b)
}

#[test]
fn a_command_inside_that_ends_the_hold_lets_the_waiter_in() {
    for inside in [
        "LOCK.RELEASE key a",
        "LOCK.LEAVE key a FOR 1000",
        "DEL key",
        "UNLINK key",
        "PEXPIRE key 20",
        "FLUSHALL",
        "FLUSHDB",
    ] {
        let (_server, mut a, token, mut b) = scene();
        guard(&mut a, token, inside).unwrap();
        assert!(granted(&mut b) > token, "{inside}");
        assert_eq!(holders_of(&mut a, "key"), ["b"], "{inside}");
        assert_not_held(guard(&mut a, token, "PING"));
    }
}

#[test]
fn a_release_of_another_lock_inside_hands_that_lock_on() {
    let (server, mut a, token, _b) = scene();
    cmd!(a, "LOCK.ACQUIRE other a 60000");
    let mut c = waiter!(server, "LOCK.ACQUIRE other c 60000 WAIT 0");
    cmd!(a, "LOCK.GUARD key a {token} LOCK.RELEASE other a");
    granted(&mut c);
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
}

#[test]
fn renaming_the_locks_own_key_inside_takes_the_hold_along() {
    let (_server, mut a, token, mut b) = scene();
    cmd!(a, "LOCK.GUARD key a {token} RENAME key moved");
    granted(&mut b);
    assert_eq!(int(&cmd!(a, "LOCK.GUARD moved a {token}")), token);
    assert_not_held(try_cmd!(a, "LOCK.GUARD key a {token}"));
}

#[test]
fn overwriting_the_locks_own_key_inside_refuses_the_waiter() {
    let (_server, mut a, token, mut b) = scene();
    cmd!(a, "LOCK.GUARD key a {token} SET key value");
    assert_error(b.try_recv(), "WRONGTYPE ");
    refused!(a, "WRONGTYPE ", "LOCK.GUARD key a {token}");
}

#[test]
fn swapping_databases_inside_takes_the_hold_along() {
    let (_server, mut a, token, mut b) = scene();
    cmd!(a, "LOCK.GUARD key a {token} SWAPDB 0 1");
    granted(&mut b);
    cmd!(a, "SELECT 1");
    assert_eq!(int(&cmd!(a, "LOCK.GUARD key a {token}")), token);
}

#[test]
fn a_copy_of_the_lock_made_inside_can_guard_as_well() {
    let (_server, mut a, token, _b) = scene();
    cmd!(a, "LOCK.GUARD key a {token} COPY key copy");
    assert_eq!(int(&cmd!(a, "LOCK.GUARD copy a {token}")), token);
}

#[test]
fn a_lock_acquired_inside_shows_the_connection_of_the_guard() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let second = cmd!(conn, "LOCK.GUARD key a {token} LOCK.ACQUIRE second a 60000");
    assert!(int(&second) > token);
    let hold = hold_of(&mut conn, "second", "a").unwrap();
    assert_eq!(hold.client, conn.client_id());
    let third = "return redis.call('LOCK.GUARD', KEYS[1], 'a', ARGV[1], 'LOCK.ACQUIRE', KEYS[2], 'a', 60000)";
    cmd!(conn, "EVAL", third, 2, "key", "third", token);
    let hold = hold_of(&mut conn, "third", "a").unwrap();
    assert_eq!(hold.client, 0, "a script sent it");
}

#[test]
fn the_guards_own_hold_can_be_renewed_re_entered_and_upgraded_inside() {
    let (_server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.RLOCK key a 60000"));
    let guard = |conn: &mut Conn, token: i64, inside: &str| {
        int(&guard(conn, token, &format!("LOCK.{inside}")).unwrap())
    };
    assert_eq!(guard(&mut conn, token, "RENEW key a 600000"), token);
    assert!(hold_of(&mut conn, "key", "a").unwrap().lease > 300_000);
    assert_eq!(guard(&mut conn, token, "RLOCK key a 1000"), token);
    let upgraded = guard(&mut conn, token, "WLOCK key a 1000");
    assert!(upgraded > token);
    let fenced = upgraded + 9;
    let raised = guard(&mut conn, upgraded, &format!("FENCE key a {fenced}"));
    assert_eq!(raised, fenced);
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().counts(), (1, 2));
}

#[test]
fn a_downgrade_inside_lets_waiting_readers_in() {
    let (server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "LOCK.RLOCK key a 60000");
    let mut readers =
        ["b", "c"].map(|owner| waiter!(server, "LOCK.RLOCK key {owner} 60000 WAIT 0"));
    cmd!(conn, "LOCK.GUARD key a {token} LOCK.RELEASE key a WRITE");
    readers.iter_mut().for_each(|reader| {
        granted(reader);
    });
    assert_eq!(int(&cmd!(conn, "LOCK.GUARD key a {token}")), token);
}

#[test]
fn commands_inside_that_read_locks_reply() {
    let (_server, mut a, token, _b) = scene();
    let info = cmd!(a, "LOCK.GUARD key a {token} LOCK.INFO key");
    assert_eq!(mortise_harness::LockInfo::read(&info).waiters, 1);
    let top = cmd!(a, "LOCK.GUARD key a {token} LOCK.TOP");
    assert_eq!(array(&top).len(), 1);
    assert!(is_nil(&cmd!(a, "LOCK.GUARD key a {token} LOCK.INFO none")));
    assert_eq!(lock_info(&mut a, "key").unwrap().waiters, 1);
}

#[test]
fn an_owner_that_has_left_cannot_guard_though_it_holds_in_another_way() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "COPY key copy");
    cmd!(conn, "LOCK.LEAVE key a FOR 60000");
    cmd!(conn, "RENAME copy key");
    assert_not_held(try_cmd!(conn, "LOCK.GUARD key a {token}"));
    assert_not_held(try_cmd!(conn, "LOCK.GUARD key a {token} SET data late"));
    assert_eq!(int(&cmd!(conn, "EXISTS data")), 0);
}

#[test]
fn a_request_by_mail_made_inside_waits_and_its_letter_belongs_to_the_caller() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "LOCK.ACQUIRE wanted b 60000");
    let queued = cmd!(
        conn,
        "LOCK.GUARD key a {token} LOCK.ACQUIRE wanted a 60000 WAIT 0 HOLDS 1 MAIL box"
    );
    let since = int(&array(&queued)[1]);
    assert_eq!(queue_of(&mut conn, "wanted"), ["a"]);
    // Inside, LOCK.MAIL does not wait, though there is no letter yet.
    let none = cmd!(conn, "LOCK.GUARD key a {token} LOCK.MAIL box WAIT 2000");
    assert_eq!(int(&array(&none)[0]), since);
    assert!(array(&array(&none)[2]).is_empty());
    cmd!(conn, "LOCK.GUARD key a {token} LOCK.RELEASE wanted b");
    let letters = cmd!(conn, "LOCK.MAIL box");
    assert_eq!(array(&array(&letters)[2]).len(), 1);
    assert_eq!(holders_of(&mut conn, "wanted"), ["a"]);
}

#[test]
fn a_lock_deleted_inside_is_no_longer_counted() {
    let (server, mut conn) = Server::start_connected();
    for inside in [
        "DEL key",
        "LOCK.RELEASE key a",
        "LOCK.LEAVE key a",
        "FLUSHALL SYNC",
        "SET key value",
        "PEXPIRE key 0",
        "RENAME key moved",
    ] {
        let token = held(&mut conn, "key");
        guard(&mut conn, token, inside).unwrap();
        cmd!(conn, "DEL key moved");
        let gauges = ["locks", "holders", "waiters"].map(|name| server.gauge(name));
        assert_eq!(gauges, [0, 0, 0], "{inside}");
    }
}

#[test]
fn a_value_written_to_the_locks_own_key_inside_stays() {
    let (server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "LOCK.RLOCK other b 600000");
    cmd!(conn, "LOCK.GUARD key a {token} RENAME other key");
    assert_eq!(holders_of(&mut conn, "key"), ["b"]);
    assert_eq!(server.gauge("holders"), 1);
    let mut c = waiter!(server, "LOCK.WLOCK key c 60000 WAIT 0");
    cmd!(conn, "LOCK.RELEASE key b");
    granted(&mut c);
}
