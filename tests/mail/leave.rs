//! LOCK.LEAVE at every point of a request's life, and late requests.

use std::time::{Duration, Instant};

use mortise_harness::{
    Letter, Mail, Server, array, assert_same_data, cmd, command, eventually, granted, hold_of,
    holders_of, int, is_nil, mail, queue, queue_of, refused, request, send, text, try_cmd,
    wait_for_sync, waiter,
};

#[test]
fn leave_of_an_absent_owner_replies_0() {
    let (_server, mut a) = Server::start_connected();
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key a")), 0);
    cmd!(a, "LOCK.ACQUIRE key b 60000");
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key a FOR 600000")), 0);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
}

#[test]
fn leave_ends_a_hold_in_both_modes_and_grants_the_next_waiter() {
    let (server, mut a) = Server::start_connected();
    for _ in 0..3 {
        cmd!(a, "LOCK.WLOCK key a 60000");
        cmd!(a, "LOCK.RLOCK key a 60000");
    }
    let mut b = waiter!(server, "LOCK.WLOCK key b 60000 WAIT 0");
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key a")), 1);
    granted(&mut b);
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key a")), 0);
}

#[test]
fn a_blocked_request_gets_null_and_the_waiter_behind_it_is_granted() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.RLOCK key a 60000");
    let mut w = waiter!(server, "LOCK.WLOCK key w 60000 WAIT 0");
    let mut r = waiter!(server, "LOCK.RLOCK key r 60000 WAIT 0");
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key w")), 1);
    assert!(is_nil(&w.recv()));
    granted(&mut r);
}

#[test]
fn a_letter_names_the_database_to_which_a_swap_moved_its_lock() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.WLOCK key b 60000");
    cmd!(a, "LOCK.RELEASE key a");
    let dbs = |letters: &[Letter]| letters.iter().map(|letter| letter.db).collect::<Vec<_>>();
    assert_eq!(dbs(&mail!(a, "box").letters), [0]);
    cmd!(a, "SWAPDB 0 1");
    assert_eq!(dbs(&mail!(a, "box").letters), [1], "sent again");
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key b")), 0);
    cmd!(a, "SELECT 1");
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key b")), 1);
    assert_eq!(holders_of(&mut a, "key"), [""; 0]);
}

#[test]
fn a_request_by_mail_leaves_without_a_letter() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    for mode in ["LOCK.RLOCK", "LOCK.WLOCK"] {
        queue!(a, "box", "{mode} key b 60000");
    }
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key b")), 1);
    assert_eq!(queue_of(&mut a, "key"), [""; 0]);
    cmd!(a, "LOCK.RELEASE key a");
    assert_eq!(mail!(a, "box").letters, []);
    assert_eq!(server.gauge("waiters_by_mail"), 0);
}

#[test]
fn letters_that_were_written_before_leave_stay() {
    let (server, mut a) = Server::start_connected();
    for key in ["granted", "denied"] {
        cmd!(a, "LOCK.ACQUIRE {key} a 60000");
    }
    queue!(a, "box", "LOCK.ACQUIRE granted b 60000");
    a.run(&request!("box", 1, "LOCK.ACQUIRE denied b 9"));
    cmd!(a, "LOCK.RELEASE granted a");
    server.await_gauge("letters", 2);
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE granted b")), 1);
    assert_eq!(holders_of(&mut a, "granted"), [""; 0]);
    // There is neither a hold nor a request.
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE granted b")), 0);
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE denied b")), 0);
    let letters = mail!(a, "box").letters;
    assert_eq!(letters.len(), 2);
    assert!(letters.iter().all(|letter| letter.key == letter.result));
}

#[test]
fn a_blocked_request_granted_in_the_turn_of_leave_gets_null() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    let replies = a.pipeline(&[command!("LOCK.RELEASE key a"), command!("LOCK.LEAVE key b")]);
    assert_eq!(int(replies[1].as_ref().unwrap()), 1);
    assert!(is_nil(&b.recv()));
    granted(&mut c);
    assert_eq!(holders_of(&mut a, "key"), ["c"]);
}

#[test]
fn an_owner_that_left_is_granted_a_new_request_in_the_same_turn() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let replies = a.pipeline(&[
        command!("LOCK.RELEASE key a"),
        command!("LOCK.LEAVE key b"),
        command!("LOCK.ACQUIRE key b 60000"),
    ]);
    assert!(int(replies[2].as_ref().unwrap()) > 0);
    assert!(is_nil(&b.recv()));
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
}

#[test]
fn late_requests_of_an_owner_that_has_left_change_nothing() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.LEAVE key a FOR 600000");
    for command in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        let replies = [
            try_cmd!(a, "{command} key a 9000"),
            try_cmd!(a, "{command} key a 9000 WAIT 0"),
            a.try_run(&request!("box", 0, "{command} key a 9000")),
        ];
        for reply in replies {
            let error = reply.unwrap_err();
            assert!(error.starts_with("LEFT "), "{error}");
        }
    }
    assert!(is_nil(&cmd!(a, "LOCK.RELEASE key a")));
    assert!(is_nil(&cmd!(a, "LOCK.RENEW key a 9000")));
    assert!(is_nil(&cmd!(a, "LOCK.FENCE key a 1")));
    assert!(is_nil(&cmd!(a, "LOCK.PASS key a b 9000")));
    assert_eq!(int(&cmd!(a, "EXISTS key")), 0);
    // Another name, another key, another database.
    assert!(int(&cmd!(a, "LOCK.ACQUIRE key b 9000")) > 0);
    assert!(int(&cmd!(a, "LOCK.ACQUIRE other a 9000")) > 0);
    cmd!(a, "SELECT 1");
    assert!(int(&cmd!(a, "LOCK.ACQUIRE key a 9000")) > 0);
}

#[test]
fn the_time_ends_and_a_later_leave_never_shortens_it() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.LEAVE long a FOR 600000");
    cmd!(a, "LOCK.LEAVE long a FOR 1");
    cmd!(a, "LOCK.LEAVE short a FOR 30");
    eventually("the time is over", || {
        try_cmd!(a, "LOCK.ACQUIRE short a 9000").is_ok()
    });
    refused!(a, "LEFT ", "LOCK.ACQUIRE long a 9000");
    server.await_gauge("left", 1);
}

#[test]
fn the_time_lasts_as_long_as_requested() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.LEAVE key a FOR 600000");
    // Until a lease of 400 ms is over on the server's clock.
    cmd!(a, "LOCK.ACQUIRE brief b 400");
    let mut c = waiter!(server, "LOCK.ACQUIRE brief c 9000 WAIT 0");
    granted(&mut c);
    refused!(a, "LEFT ", "LOCK.ACQUIRE key a 9000");
}

#[test]
fn the_time_does_not_end_a_fraction_of_a_millisecond_early() {
    let (_server, mut a) = Server::start_connected();
    for n in 0..30 {
        let owner = format!("a{n}");
        let sent = Instant::now();
        cmd!(a, "LOCK.LEAVE key {owner} FOR 5");
        while try_cmd!(a, "LOCK.ACQUIRE key {owner} 1 TOKEN 1").is_err() {}
        assert!(sent.elapsed() >= Duration::from_millis(5));
    }
}

#[test]
fn the_time_survives_a_flush_and_a_reload() {
    let (_server, mut a) = Server::configured("enable-debug-command yes");
    cmd!(a, "LOCK.LEAVE key a FOR 600000");
    cmd!(a, "FLUSHALL");
    cmd!(a, "DEBUG RELOAD");
    refused!(a, "LEFT ", "LOCK.ACQUIRE key a 9000");
}

#[test]
fn leave_works_on_a_key_of_any_type() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "SET key text");
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key a FOR 1000")), 0);
    cmd!(a, "DEL key");
    cmd!(a, "LOCK.ACQUIRE key b 60000");
    queue!(a, "box", "LOCK.ACQUIRE key c 60000");
    // When a key becomes another type, its request is refused by a letter of that key.
    cmd!(a, "SET key text");
    server.await_gauge("letters", 1);
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key c")), 0);
    assert_eq!(text(&cmd!(a, "GET key")), "text");
}

#[test]
fn leave_works_in_the_grace() {
    let (_server, mut a) = Server::configured("lock.grace 60000");
    queue!(a, "box", "LOCK.ACQUIRE key a 60000");
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key a FOR 9000")), 1);
    assert_eq!(queue_of(&mut a, "key"), [""; 0]);
}

#[test]
fn with_too_few_replicas_leave_is_refused_like_any_write() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    cmd!(a, "CONFIG SET min-replicas-to-write 1");
    refused!(a, "NOREPLICAS", "LOCK.LEAVE key a FOR 9000");
    assert_eq!(holders_of(&mut a, "key"), ["a"]);
    cmd!(a, "CONFIG SET min-replicas-to-write 0");
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key a FOR 9000")), 1);
}

#[test]
fn leave_is_replicated_and_a_replica_refuses_it() {
    let primary = Server::start();
    let replica = primary.start_replica();
    let mut a = primary.connect();
    for owner in ["a", "b"] {
        cmd!(a, "LOCK.RLOCK key {owner} 60000");
    }
    cmd!(a, "LOCK.LEAVE key a FOR 9000");
    wait_for_sync(&primary, &replica);
    assert_same_data(&primary, &replica);
    refused!(replica.connect(), "READONLY", "LOCK.LEAVE key b");
}

#[test]
fn leave_counts_as_a_release() {
    let (server, mut a) = Server::start_connected();
    let mut listener = server.connect();
    cmd!(a, "CONFIG SET notify-keyspace-events Kd");
    cmd!(listener, "SUBSCRIBE __keyspace@0__:key");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    cmd!(a, "LOCK.LEAVE key a");
    let names = [(); 2].map(|()| text(&array(&listener.recv())[2]));
    assert_eq!(names, ["lock.acquire", "lock.release"]);
    assert_eq!(server.gauge("total_releases"), 1);
}

#[test]
fn errors_name_the_bad_argument() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    for (options, part) in [
        ("a FOR 0", "FOR must be an integer from 1 to 600000"),
        ("a FOR 600001", "FOR must be"),
        ("a FOR", "FOR needs a value"),
        ("a FOR 1 FOR 1", "FOR given twice"),
        ("a WAIT 1", "unknown option"),
    ] {
        let error = refused!(a, "ERR ", "LOCK.LEAVE key {options}");
        assert!(error.contains(part), "{error}");
    }
    refused!(a, "ERR owner must be", "LOCK.LEAVE", "key", "");
    assert_eq!(holders_of(&mut a, "key"), ["a"]);
}

#[test]
fn in_a_transaction_leave_takes_effect_at_once() {
    let server = Server::start();
    let (mut a, mut reader) = (server.connect(), server.connect());
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    send!(reader, "LOCK.MAIL box WAIT 0");
    server.await_blocked(&reader);
    cmd!(a, "MULTI");
    cmd!(a, "LOCK.RELEASE key a");
    cmd!(a, "LOCK.LEAVE key b");
    cmd!(a, "EXEC");
    assert_eq!(holders_of(&mut a, "key"), [""; 0]);
    // A letter that was written may still arrive.
    assert_eq!(Mail::read(&reader.recv()).results(), [("b", "granted")]);
}

#[test]
fn an_argument_out_of_bounds_takes_precedence_over_left() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.LEAVE key a FOR 60000");
    let largest = (1_u64 << 53) - 1;
    let error = refused!(a, "ERR ", "LOCK.ACQUIRE key a 1000 FENCE {largest}");
    assert!(error.contains("FENCE"), "{error}");
}

#[test]
fn leave_in_another_database_lets_the_grant_of_the_same_names_stand() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    // The grant is decided, and its client gets it at the end of the turn.
    let replies = a.pipeline(&[
        command!("LOCK.RELEASE key a"),
        command!("SELECT 1"),
        command!("LOCK.LEAVE key b"),
        command!("SELECT 0"),
    ]);
    assert_eq!(int(replies[2].as_ref().unwrap()), 0);
    let token = granted(&mut b);
    let hold = hold_of(&mut a, "key", "b").expect("b holds");
    assert_eq!(hold.token, token);
}
