//! Replies of LOCK.MACQUIRE without a wait, and to a repeated request.

use mortise_harness::{
    Conn, Server, Shutdown, array, as_map, cmd, command, granted, hold_of, holders_of, int, is_nil,
    lock_info, mail, queue_of, queued, refused, text, try_cmd, waiter,
};

use super::{A, B, C, all_free, by_mail, nobody_waits, several};

#[test]
fn free_keys_are_granted_at_once_by_one_token_with_count_1() {
    let (_server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.MACQUIRE m 60000 3 {B} {A} {C}"));
    for key in [A, B, C] {
        let hold = hold_of(&mut conn, key, "m").unwrap();
        assert_eq!((hold.counts(), hold.token), ((1, 0), token));
        assert_eq!(hold.client, conn.client_id());
        assert!((50_000..=60_000).contains(&hold.lease));
    }
    // From now on each is a hold like any other.
    int(&cmd!(conn, "LOCK.RENEW {A} m 70000 TOKEN {token}"));
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE {A} m")), 0);
    assert_eq!(int(&cmd!(conn, "LOCK.GUARD {B} m {token}")), token);
    assert!(int(&cmd!(conn, "LOCK.PASS {B} m n 60000")) > token);
    assert_eq!(int(&cmd!(conn, "LOCK.LEAVE {C} m")), 1);
    assert_eq!(holders_of(&mut conn, B), ["n"]);
    all_free(&mut conn, &[A, C]);
}

#[test]
fn sixteen_keys_are_granted_by_the_requested_token() {
    let server = Server::start();
    let mut conn = server.connect_resp3();
    let keys: Vec<String> = (0..16).map(|n| format!("{{k}}{n}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let token = int(&conn.run(&several("m", &keys, &[])));
    let fence = (token + 5_000).to_string();
    let mut waiter = server.waiter(&several("w", &keys, &["WAIT", "0", "FENCE", &fence]));
    for key in &keys {
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE {key} m")), 0);
    }
    let next = granted(&mut waiter);
    assert!(next >= token + 5_000);
    for key in &keys {
        assert_eq!(hold_of(&mut conn, key, "w").unwrap().token, next);
    }
    nobody_waits(&server, &keys);
}

#[test]
fn one_held_key_denies_all() {
    let (server, mut conn) = Server::start_connected();
    for mode in ["LOCK.ACQUIRE", "LOCK.RLOCK"] {
        cmd!(conn, "{mode} {B} h 60000");
        assert!(is_nil(&cmd!(conn, "LOCK.MACQUIRE m 60000 3 {A} {B} {C}")));
        all_free(&mut conn, &[A, C]);
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE {B} h")), 0);
    }
    assert_eq!(server.gauge("total_denied"), 2);
    int(&cmd!(conn, "LOCK.MACQUIRE m 60000 3 {A} {B} {C}"));
}

#[test]
fn a_transaction_and_a_script_take_all_or_nothing_and_never_wait() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
    let steps = [
        command!("MULTI"),
        command!("LOCK.MACQUIRE m 60000 2 {A} {B} WAIT 0"),
        command!("LOCK.MACQUIRE n 60000 2 {A} {C} WAIT 0"),
        command!("EXEC"),
    ];
    let replies = conn.pipeline(&steps);
    let replies = array(replies[3].as_ref().unwrap());
    assert!(is_nil(&replies[0]));
    let token = int(&replies[1]);
    assert_eq!(hold_of(&mut conn, A, "n").unwrap().token, token);
    let script =
        "return redis.call('LOCK.MACQUIRE', ARGV[1], 60000, #KEYS, KEYS[1], KEYS[2], 'WAIT', 0)";
    assert!(is_nil(&cmd!(conn, "EVAL", script, 2, A, B, "m")));
    cmd!(conn, "LOCK.RELEASE {B} h");
    cmd!(conn, "LOCK.RELEASE {A} n");
    let token = int(&cmd!(conn, "EVAL", script, 2, A, B, "m"));
    for key in [A, B] {
        assert_eq!(hold_of(&mut conn, key, "m").unwrap().token, token);
    }
    nobody_waits(&server, &[A, B, C]);
}

#[test]
fn a_repeated_request_gets_its_token_and_extends_the_leases() {
    let (server, mut conn) = Server::start_connected();
    let short = command!("LOCK.MACQUIRE m 30000 2 {A} {B}");
    let token = int(&conn.run(&short));
    let same = command!("LOCK.MACQUIRE m 60000 2 {B} {A} WAIT 0");
    assert_eq!(int(&conn.run(&same)), token);
    for key in [A, B] {
        let hold = hold_of(&mut conn, key, "m").unwrap();
        assert_eq!((hold.counts(), hold.token), ((1, 0), token));
        assert!(hold.lease > 30_000, "{hold:?}");
    }
    // A shorter lease shortens nothing.
    assert_eq!(int(&conn.run(&short)), token);
    assert!(hold_of(&mut conn, A, "m").unwrap().lease > 30_000);
    // A request for some of the keys is also a repeat.
    assert_eq!(int(&cmd!(conn, "LOCK.MACQUIRE m 60000 1 {A}")), token);
    // The same while others wait, and by mail.
    let _w = waiter!(server, "LOCK.MACQUIRE w 60000 2 {A} {B} WAIT 0");
    let by_mail = cmd!(conn, "LOCK.MACQUIRE m 60000 2 {A} {B} WAIT 0 MAIL {{k}}box");
    assert_eq!(int(&by_mail), token);
    assert_eq!(queue_of(&mut conn, A), ["w"]);
}

#[test]
fn an_owner_that_holds_some_of_the_keys_gets_an_error_and_is_never_queued() {
    let (server, mut conn) = Server::start_connected();
    let refuses = |conn: &mut Conn| {
        for way in ["", "WAIT 0", "WAIT 0 MAIL {k}box"] {
            let holds = "ERR the owner holds one";
            refused!(conn, holds, "LOCK.MACQUIRE m 60000 2 {A} {B} {way}");
        }
    };
    // It holds only one of them.
    cmd!(conn, "LOCK.ACQUIRE {A} m 60000");
    refuses(&mut conn);
    // It holds both, by two tokens.
    cmd!(conn, "LOCK.ACQUIRE {B} m 60000");
    refuses(&mut conn);
    // It holds one of them only for reading.
    cmd!(conn, "LOCK.RELEASE {A} m");
    cmd!(conn, "LOCK.RLOCK {A} m 60000");
    let token = hold_of(&mut conn, A, "m").unwrap().token;
    assert_eq!(int(&cmd!(conn, "LOCK.FENCE {B} m {token}")), token);
    assert_eq!(hold_of(&mut conn, B, "m").unwrap().token, token);
    refuses(&mut conn);
    // It holds one, and another owner the other.
    cmd!(conn, "LOCK.RELEASE {A} m");
    cmd!(conn, "LOCK.ACQUIRE {A} x 60000");
    refuses(&mut conn);
    nobody_waits(&server, &[A, B]);
    assert_eq!(hold_of(&mut conn, B, "m").unwrap().token, token);
}

#[test]
fn a_revoked_hold_refuses_the_repeat_and_extends_no_lease() {
    let (_server, mut conn) = Server::start_connected();
    int(&cmd!(conn, "LOCK.MACQUIRE m 30000 2 {A} {B}"));
    int(&cmd!(conn, "LOCK.REVOKE {B} m"));
    // With a third key, too, which the owner does not hold.
    for keys in [format!("2 {A} {B}"), format!("3 {A} {B} {C}")] {
        refused!(conn, "REVOKED ", "LOCK.MACQUIRE m 60000 {keys}");
    }
    for key in [A, B] {
        assert!(hold_of(&mut conn, key, "m").unwrap().lease <= 30_000);
    }
}

#[test]
fn in_the_grace_the_repeat_gets_tryagain_and_others_wait_until_it_ends() {
    let (mut server, mut conn) = Server::configured("appendonly yes");
    let token = int(&cmd!(conn, "LOCK.MACQUIRE m 60000 2 {A} {B}"));
    server.set_module_arg("grace", "3000");
    server.restart(Shutdown::AsConfigured);
    let mut conn = server.connect();
    refused!(conn, "TRYAGAIN ", "LOCK.MACQUIRE m 60000 2 {A} {B}");
    assert!(is_nil(&cmd!(conn, "LOCK.MACQUIRE x 60000 1 {C}")));
    // One request waits for all keys, and one for free keys.
    let mut waiter = waiter!(server, "LOCK.MACQUIRE w 60000 2 {C} {{k}}d WAIT 0");
    assert_eq!(queue_of(&mut conn, C), ["w"]);
    granted(&mut waiter);
    assert_eq!(int(&cmd!(conn, "LOCK.MACQUIRE m 60000 2 {A} {B}")), token);
}

#[test]
fn by_mail_the_same_request_keeps_its_place_and_takes_the_new_terms() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE {A} h 60000");
    let since = by_mail(&mut conn, "m", &[A, B]);
    let _behind = waiter!(server, "LOCK.MACQUIRE n 60000 2 {A} {B} WAIT 0");
    let again = command!("LOCK.MACQUIRE m 20000 2 {B} {A} WAIT 90000 MAIL {{k}}box");
    assert_eq!(queued(&conn.run(&again)), since);
    for key in [A, B] {
        assert_eq!(queue_of(&mut conn, key), ["m", "n"]);
        let first = &lock_info(&mut conn, key).unwrap().queue[0];
        assert_eq!(
            (first.lease, first.keys, first.count, first.client),
            (20_000, 2, 1, 0)
        );
        assert!((80_000..=90_000).contains(&first.left), "{first:?}");
        assert_eq!(first.mode, "write");
    }
    for other in [
        "2 {k}a {k}b WAIT 0",
        "2 {k}a {k}b",
        "3 {k}a {k}b {k}c WAIT 0 MAIL {k}box",
        "1 {k}a WAIT 0 MAIL {k}box",
        "2 {k}c {k}b WAIT 0 MAIL {k}box",
    ] {
        let at_one = "ERR the owner waits at one";
        refused!(conn, at_one, "LOCK.MACQUIRE m 60000 {other}");
    }
    cmd!(conn, "LOCK.RELEASE {A} h");
    let mail = mail!(conn, "{{k}}box WAIT 2000");
    let letter = mail.only();
    let (token, lease, _) = letter.grant.unwrap();
    assert_eq!(lease, 20_000);
    assert_eq!((&*letter.key, &*letter.mode), (A, "write"));
    assert_eq!(letter.keys, Some(vec![A.to_owned(), B.to_owned()]));
    for key in [A, B] {
        assert_eq!(hold_of(&mut conn, key, "m").unwrap().token, token);
    }
    all_free(&mut conn, &[C]);
}

#[test]
fn while_it_waits_its_owner_can_request_nothing_else_at_its_keys() {
    let at_one = "ERR the owner waits at one";
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE {A} h 60000");
    let mut waiter = waiter!(server, "LOCK.MACQUIRE m 60000 2 {A} {B} WAIT 0");
    for key in [A, B] {
        for mode in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
            for way in ["", "WAIT 0", "WAIT 0 MAIL {k}box HOLDS 1"] {
                let waits = "ERR the owner waits at this key";
                refused!(conn, waits, "{mode} {key} m 60000 {way}");
            }
        }
        refused!(conn, at_one, "LOCK.MACQUIRE m 60000 1 {key} WAIT 0");
    }
    // At other keys it can.
    int(&cmd!(conn, "LOCK.ACQUIRE {C} m 60000"));
    cmd!(conn, "LOCK.RELEASE {A} h");
    granted(&mut waiter);
    // An owner that waits for one of the keys cannot request several.
    cmd!(conn, "LOCK.ACQUIRE {{k}}d h 60000");
    let _one = waiter!(server, "LOCK.RLOCK {{k}}d n 60000 WAIT 0");
    refused!(conn, at_one, "LOCK.MACQUIRE n 60000 2 {{k}}e {{k}}d WAIT 0");
}

#[test]
fn errors_name_the_bad_key() {
    let (server, mut conn) = Server::builder().alone().start_connected();
    let error = try_cmd!(conn, "LOCK.MACQUIRE m 60000 3 {A} {B} {A}").unwrap_err();
    assert_eq!(error, "ERR key '{k}a' is named twice");
    for (wrong, error) in [
        ("0 {k}a", "ERR numkeys must be an integer from 1 to 16"),
        ("17 {k}a", "ERR numkeys must be an integer from 1 to 16"),
        ("2 {k}a", "ERR numkeys must be at most 1"),
        ("1 {k}a MAIL box", "ERR syntax error"),
        ("1 {k}a HOLDS 1", "ERR syntax error"),
    ] {
        refused!(conn, error, "LOCK.MACQUIRE m 60000 {wrong}");
    }
    cmd!(conn, "SET {B} text");
    refused!(conn, "WRONGTYPE ", "LOCK.MACQUIRE m 60000 2 {A} {B} WAIT 0");
    all_free(&mut conn, &[A]);
    nobody_waits(&server, &[A]);
}

#[test]
fn an_owner_that_has_left_one_of_the_keys_takes_none() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.LEAVE {B} m FOR 60000");
    for way in ["", "WAIT 0", "WAIT 0 MAIL {k}box"] {
        refused!(conn, "LEFT ", "LOCK.MACQUIRE m 60000 2 {A} {B} {way}");
    }
    all_free(&mut conn, &[A, B]);
    int(&cmd!(conn, "LOCK.MACQUIRE m 60000 2 {A} {C}"));
}

#[test]
fn each_key_emits_an_event_and_the_request_counts_once() {
    let server = Server::builder()
        .config("notify-keyspace-events", "Kd")
        .start();
    let (mut conn, mut listener) = (server.connect(), server.connect());
    cmd!(listener, "PSUBSCRIBE __keyspace@0__:*");
    let mut heard = || {
        let message = listener.recv();
        let message = array(&message);
        (text(&message[2]), text(&message[3]))
    };
    let event = |key: &str| (format!("__keyspace@0__:{key}"), "lock.acquire".to_owned());
    cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
    assert_eq!(heard(), event(B));
    let mut waiter = waiter!(server, "LOCK.MACQUIRE m 60000 3 {A} {B} {C} WAIT 0");
    assert_eq!(server.gauge("waiters"), 1);
    let top = cmd!(conn, "LOCK.TOP");
    let mut keys: Vec<_> = array(&top)
        .iter()
        .map(|lock| text(&as_map(lock)["key"]))
        .collect();
    keys.sort();
    assert_eq!(keys, [A, B, C]);
    cmd!(conn, "LOCK.RELEASE {B} h");
    granted(&mut waiter);
    assert_eq!(heard().1, "lock.release");
    for key in [A, B, C] {
        assert_eq!(heard(), event(key));
    }
    // The same request again, as if its reply was lost.
    cmd!(conn, "LOCK.MACQUIRE m 60000 3 {A} {B} {C}");
    for key in [A, B, C] {
        assert_eq!(heard(), event(key));
    }
    assert_eq!(server.gauge("total_grants"), 2);
    assert_eq!(server.gauge("total_handoffs"), 1);
    assert_eq!(server.gauge("locks"), 3);
    server.await_gauge("waiters", 0);
}
