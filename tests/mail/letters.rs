//! Letters: delivered to one reader at a time, until they are deleted.

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Mail, Server, array, assert_error, cmd, command, holders_of, int, mail, queue, refused,
    request, send, text, try_cmd,
};

/// `a` held `key`; then `b`, `c` and `d` were granted it by mail, one after the other.
fn three_letters(server: &Server) -> (Conn, Mail) {
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    for owner in ["b", "c", "d"] {
        queue!(conn, "box", "LOCK.ACQUIRE key {owner} 60000");
    }
    for owner in ["a", "b", "c"] {
        cmd!(conn, "LOCK.RELEASE key {owner}");
    }
    let told = mail!(conn, "box");
    (conn, told)
}

#[test]
fn letters_are_delivered_oldest_first_until_a_later_call_names_their_number() {
    let server = Server::start();
    let (mut conn, told) = three_letters(&server);
    assert!(told.letters.iter().all(|letter| letter.result == "granted"));
    let (since, last) = (told.since, told.letters[2].number);
    let (other, first) = (since - 1, told.letters[0].number);
    let cases: [(String, &[&str]); 8] = [
        (String::new(), &["b", "c", "d"]),
        (format!("AFTER {since} 0"), &["b", "c", "d"]),
        // The number of another box.
        (format!("AFTER {other} {last}"), &["b", "c", "d"]),
        (format!("AFTER 0 {last}"), &["b", "c", "d"]),
        ("COUNT 2".to_owned(), &["b", "c"]),
        (format!("AFTER {since} {first}"), &["c", "d"]),
        (format!("COUNT 1 AFTER {since} {first}"), &["c"]),
        (format!("AFTER {since} {last}"), &[]),
    ];
    for (options, expected) in cases {
        let told = mail!(conn, "box {options}");
        let owners: Vec<&str> = told.letters.iter().map(|letter| &*letter.owner).collect();
        assert_eq!(owners, expected, "{options}");
    }
    assert_eq!(server.gauge("letters"), 0);
}

#[test]
fn a_call_waits_for_a_letter_and_replies_how_long_it_waited_and_how_old_the_grant_is() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    for mut reader in [server.connect(), server.connect_resp3()] {
        send!(reader, "LOCK.MAIL box WAIT 0");
        server.await_blocked(&reader);
        cmd!(a, "LOCK.RELEASE key a");
        let told = Mail::read(&reader.recv());
        let (_, _, age) = told.only().grant.unwrap();
        // The grant happened during the call's wait.
        assert!(age <= told.waited + 2, "{told:?}");
        mail!(a, "box", "AFTER", told.since, told.only().number);
        cmd!(a, "LOCK.LEAVE key b");
        cmd!(a, "LOCK.ACQUIRE key a 60000");
        queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    }
}

#[test]
fn a_call_with_undeleted_letters_does_not_wait() {
    let server = Server::start();
    let (mut conn, told) = three_letters(&server);
    assert_eq!(mail!(conn, "box WAIT 0").letters.len(), 3);
    let last = told.letters[2].number;
    let told = mail!(conn, "box", "WAIT", 1, "AFTER", told.since, last);
    assert_eq!(told.letters, []);
}

#[test]
fn a_wait_ends_without_letters_when_its_time_is_up() {
    let (_server, mut conn) = Server::configured("lock.mail-timeout 400");
    let told = mail!(conn, "box WAIT 20");
    assert_eq!(told.letters, []);
    assert!((19..10_000).contains(&told.waited), "{told:?}");
    // The longest wait is half of a box's life.
    for wait in [0, 1_000_000] {
        let told = mail!(conn, "box WAIT {wait}");
        assert!((199..10_000).contains(&told.waited), "{told:?}");
        assert_eq!(told.letters, []);
    }
}

#[test]
fn a_newer_call_ends_the_wait_of_an_older_one() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    let (mut older, mut newer) = (server.connect(), server.connect());
    send!(older, "LOCK.MAIL box WAIT 0");
    server.await_blocked(&older);
    send!(newer, "LOCK.MAIL box WAIT 0");
    assert_error(older.try_recv(), "UNBLOCKED ");
    server.await_blocked(&newer);
    cmd!(a, "LOCK.RELEASE key a");
    assert_eq!(Mail::read(&newer.recv()).results(), [("b", "granted")]);
}

#[test]
fn in_a_transaction_or_a_script_a_call_replies_at_once() {
    let (_server, mut conn) = Server::start_connected();
    let since = mail!(conn, "box").since;
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.MAIL box WAIT 0");
    let replies = cmd!(conn, "EXEC");
    assert_eq!(Mail::read(&array(&replies)[0]).since, since);
    let script = "return redis.call('LOCK.MAIL', ARGV[1], 'WAIT', 0)";
    let told = Mail::read(&cmd!(conn, "EVAL", script, 0, "box"));
    assert_eq!(told.since, since);
}

#[test]
fn unblocking_or_killing_the_reader_ends_the_call_but_no_request() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    let mut reader = server.connect();
    for how in ["TIMEOUT", "ERROR", "KILL"] {
        send!(reader, "LOCK.MAIL box WAIT 0");
        server.await_blocked(&reader);
        let id = reader.client_id();
        match how {
            "KILL" => cmd!(a, "CLIENT KILL ID {id}"),
            _ => cmd!(a, "CLIENT UNBLOCK {id} {how}"),
        };
        match (how, reader.try_recv()) {
            ("TIMEOUT", Ok(reply)) => assert_eq!(Mail::read(&reply).letters, []),
            ("ERROR", Err(error)) => assert!(error.starts_with("UNBLOCKED"), "{error}"),
            ("KILL", Err(error)) => assert!(error.starts_with("connection closed"), "{error}"),
            (_, other) => panic!("{how}: {other:?}"),
        }
        reader = server.connect();
    }
    cmd!(a, "LOCK.RELEASE key a");
    assert_eq!(mail!(a, "box").results(), [("b", "granted")]);
}

#[test]
fn a_letter_to_a_reader_that_vanishes_in_the_same_turn_is_delivered_to_the_next_one() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    let mut reader = server.connect();
    send!(reader, "LOCK.MAIL box WAIT 0");
    server.await_blocked(&reader);
    let replies = a.pipeline(&[
        command!("LOCK.RELEASE key a"),
        command!("CLIENT", "KILL", "ID", reader.client_id()),
        command!("LOCK.MAIL box"),
    ]);
    let told = Mail::read(replies[2].as_ref().unwrap());
    assert_eq!(told.results(), [("b", "granted")]);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
}

#[test]
fn numbers_grow_over_boxes_and_restarts() {
    let mut server = Server::builder().config("appendonly", "yes").start();
    let (_, told) = three_letters(&server);
    let mut conn = server.connect();
    let other = mail!(conn, "other").since;
    assert!(told.letters.iter().all(|letter| letter.number > told.since));
    assert!(other > told.letters[2].number);
    server.restart(mortise_harness::Shutdown::Save);
    let mut conn = server.connect();
    assert!(mail!(conn, "box").since > other);
}

#[test]
fn errors_name_the_bad_argument() {
    let (server, mut conn) = Server::start_connected();
    for (options, part) in [
        ("AFTER 1", "AFTER"),
        ("AFTER x 1", "since must be"),
        ("AFTER 1 -1", "number must be"),
        ("WAIT x", "WAIT must be"),
        ("COUNT 0", "COUNT must be"),
        ("WAIT 1 WAIT 1", "WAIT given twice"),
        ("KEYS", "unknown option"),
    ] {
        let error = refused!(conn, "ERR ", "LOCK.MAIL box {options}");
        assert!(error.contains(part), "{error}");
    }
    refused!(conn, "ERR wrong number of arguments", "LOCK.MAIL");
    assert_eq!(server.gauge("boxes"), 0);
}

#[test]
fn a_box_is_routed_like_a_key_but_is_no_key() {
    let (_server, mut conn) = Server::start_connected();
    let error = try_cmd!(conn, "COMMAND GETKEYS LOCK.MAIL box").unwrap_err();
    assert!(error.contains("no key arguments"), "{error}");
    cmd!(conn, "ACL SETUSER u on nopass +@all ~nothing*");
    cmd!(conn, "AUTH u any");
    assert_eq!(mail!(conn, "box").letters, []);
}

#[test]
fn pauses_of_writes_do_not_delay_letters() {
    let server = Server::start();
    let (mut conn, told) = three_letters(&server);
    cmd!(conn, "CLIENT PAUSE 60000 WRITE");
    assert_eq!(mail!(conn, "box").letters.len(), told.letters.len());
    cmd!(conn, "CLIENT UNPAUSE");
}

#[test]
fn a_letter_may_come_before_the_reply_and_reports_the_same_grant() {
    let server = Server::start();
    let (mut a, mut reader) = (server.connect(), server.connect());
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    send!(reader, "LOCK.MAIL box WAIT 0");
    server.await_blocked(&reader);
    assert_eq!(server.gauge("blocked_clients"), 1);
    let replies = a.pipeline(&[
        request!("box", 0, "LOCK.ACQUIRE key b 9000"),
        command!("LOCK.RELEASE key a"),
    ]);
    let word = replies[0].as_ref().unwrap();
    assert_eq!(text(&array(word)[0]), "QUEUED");
    assert_eq!(Mail::read(&reader.recv()).results(), [("b", "granted")]);
    assert_eq!(int(replies[1].as_ref().unwrap()), 0);
    server.await_gauge("blocked_clients", 0);
    assert!(matches!(cmd!(a, "LOCK.INFO key OWNER b"), Value::Array(_)));
}
