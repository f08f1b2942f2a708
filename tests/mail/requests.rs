//! Requests by mail: how they are queued, repeated, and decided.

use mortise_harness::{
    Server, array, assert_error, cmd, granted, hold_of, holders_of, int, is_nil, lock_info, mail,
    queue, queue_of, queued, refused, request, text, waiter,
};

#[test]
fn a_request_that_need_not_wait_is_granted_at_once() {
    let (_server, mut a) = Server::start_connected();
    let wait = a.run(&request!("box", 0, "LOCK.ACQUIRE key a 9000"));
    assert!(int(&wait) > 0);
    assert_eq!(mail!(a, "box").letters, []);
    assert_eq!(holders_of(&mut a, "key"), ["a"]);
}

#[test]
fn a_waiting_request_is_granted_in_its_turn_by_a_letter() {
    let server = Server::start();
    for mut conn in [server.connect(), server.connect_resp3()] {
        let first = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000"));
        let since = queue!(conn, "box", "LOCK.ACQUIRE key b 30000");
        assert_eq!(queue!(conn, "box", "LOCK.RLOCK key c 20000"), since);
        assert_eq!(queue_of(&mut conn, "key"), ["b", "c"]);
        assert_eq!(mail!(conn, "box").letters, []);
        cmd!(conn, "LOCK.RELEASE key a");
        let told = mail!(conn, "box");
        assert_eq!(told.since, since);
        let letter = told.only();
        let (token, lease, age) = letter.grant.unwrap();
        assert_eq!((&*letter.key, letter.db, &*letter.owner), ("key", 0, "b"));
        assert_eq!((&*letter.mode, &*letter.result), ("write", "granted"));
        assert!(token > first && letter.number >= since, "{letter:?}");
        assert_eq!(lease, 30_000);
        assert!((0..20_000).contains(&age), "{age}");
        assert_eq!(holders_of(&mut conn, "key"), ["b"]);
        cmd!(conn, "LOCK.RELEASE key b");
        let told = mail!(conn, "box", "AFTER", since, letter.number);
        assert_eq!(told.results(), [("c", "granted")]);
        assert_eq!(told.only().mode, "read");
        mail!(conn, "box", "AFTER", since, told.only().number);
        cmd!(conn, "LOCK.LEAVE key c");
    }
}

#[test]
fn blocked_requests_and_those_by_mail_stand_in_one_queue() {
    let (server, mut a) = Server::start_connected();
    int(&cmd!(a, "LOCK.ACQUIRE key a 60000 HOLDS 1 WAIT 0 MAIL box"));
    // It was granted at once, by the connection's reply.
    assert_eq!(hold_of(&mut a, "key", "a").unwrap().client, a.client_id());
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    queue!(a, "box", "LOCK.ACQUIRE key d 60000");
    assert_eq!(queue_of(&mut a, "key"), ["b", "c", "d"]);
    let queue = lock_info(&mut a, "key").unwrap().queue;
    let clients: Vec<i64> = queue.iter().map(|entry| entry.client).collect();
    assert_eq!(clients, [0, c.client_id(), 0]);
    for owner in ["a", "b"] {
        cmd!(a, "LOCK.RELEASE key {owner}");
    }
    granted(&mut c);
    cmd!(a, "LOCK.RELEASE key c");
    let told = mail!(a, "box");
    assert_eq!(told.results(), [("b", "granted"), ("d", "granted")]);
    assert!(told.letters[0].token() < told.letters[1].token());
    assert!(told.letters[0].number < told.letters[1].number);
}

#[test]
fn a_closed_connection_does_not_end_requests_by_mail() {
    let server = Server::start();
    let (mut a, mut b) = (server.connect(), server.connect());
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(b, "box", "LOCK.ACQUIRE key b 60000");
    cmd!(a, "CLIENT", "KILL", "ID", b.client_id());
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    cmd!(a, "LOCK.RELEASE key a");
    assert_eq!(mail!(a, "box").results(), [("b", "granted")]);
}

#[test]
fn a_wait_that_times_out_is_denied_by_a_letter() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queued(&a.run(&request!("box", 30, "LOCK.ACQUIRE key b 9000")));
    let told = mail!(a, "box WAIT 0");
    assert_eq!(told.results(), [("b", "denied")]);
    assert_eq!(queue_of(&mut a, "key"), [""; 0]);
    assert_eq!(server.gauge("total_timeouts"), 1);
}

#[test]
fn a_repeated_request_keeps_its_place_and_takes_the_new_terms() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 10000");
    queue!(a, "box", "LOCK.ACQUIRE key c 10000");
    let again = cmd!(a, "LOCK.ACQUIRE key b 20000 WAIT 50000 MAIL other HOLDS 3");
    queued(&again);
    assert_eq!(queue_of(&mut a, "key"), ["b", "c"]);
    let info = lock_info(&mut a, "key").unwrap();
    assert_eq!((info.queue[0].lease, info.queue[1].lease), (20_000, 10_000));
    assert!((1..=50_000).contains(&info.queue[0].left), "{info:?}");
    cmd!(a, "LOCK.RELEASE key a");
    assert_eq!(mail!(a, "box").letters, []);
    let told = mail!(a, "other");
    assert_eq!(told.results(), [("b", "granted")]);
    assert_eq!(told.only().grant.unwrap().1, 20_000);
    assert_eq!(int(&cmd!(a, "LOCK.RELEASE key b")), 2);
}

#[test]
fn a_request_in_the_other_mode_is_another_request() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.RLOCK key b 10000");
    queue!(a, "box", "LOCK.WLOCK key b 10000");
    assert_eq!(queue_of(&mut a, "key"), ["b", "b"]);
}

#[test]
fn a_refusal_stays_when_the_request_is_repeated() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queued(&a.run(&request!("box", 1, "LOCK.ACQUIRE key b 9000")));
    assert_eq!(mail!(a, "box WAIT 0").results(), [("b", "denied")]);
    queue!(a, "box", "LOCK.ACQUIRE key b 9000");
    cmd!(a, "LOCK.RELEASE key a");
    let told = mail!(a, "box");
    assert_eq!(told.results(), [("b", "denied"), ("b", "granted")]);
}

#[test]
fn a_request_repeated_after_an_undelivered_grant_gets_the_same_hold() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 9000");
    cmd!(a, "LOCK.RELEASE key a");
    let again = a.run(&request!("box", 0, "LOCK.ACQUIRE key b 9000"));
    assert_eq!(int(&again), mail!(a, "box").only().token());
    assert_eq!(int(&cmd!(a, "LOCK.RELEASE key b")), 0);
}

#[test]
fn requests_by_mail_are_queued_in_transactions_and_scripts_too() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    cmd!(a, "MULTI");
    a.run(&request!("box", 0, "LOCK.ACQUIRE key b 9000"));
    let replies = cmd!(a, "EXEC");
    let since = queued(&array(&replies)[0]);
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'c', 9000, 'WAIT', 0, 'MAIL', 'box', 'HOLDS', 1)";
    assert_eq!(queued(&cmd!(a, "EVAL", script, 1, "key")), since);
    assert_eq!(queue_of(&mut a, "key"), ["b", "c"]);
}

#[test]
fn mail_requires_wait_and_holds() {
    let (_server, mut a) = Server::start_connected();
    for options in ["MAIL box", "WAIT 0 MAIL box", "MAIL box HOLDS 1"] {
        let error = refused!(a, "ERR ", "LOCK.ACQUIRE key a 1000 {options}");
        assert!(error.contains("MAIL needs WAIT and HOLDS"), "{error}");
    }
    let unnamed = request!("", 0, "LOCK.ACQUIRE key a 1000");
    assert_error(a.try_run(&unnamed), "ERR box must be 1 to 64 bytes");
    assert_eq!(int(&cmd!(a, "EXISTS key")), 0);
}

#[test]
fn info_counts_requests_boxes_and_letters() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let _b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    queue!(a, "one", "LOCK.ACQUIRE key c 60000");
    queue!(a, "other", "LOCK.ACQUIRE key d 60000");
    let gauges = |names: [&str; 4]| names.map(|name| server.gauge(name));
    let names = ["waiters", "waiters_by_mail", "boxes", "letters"];
    assert_eq!(gauges(names), [3, 2, 2, 0]);
    cmd!(a, "LOCK.LEAVE key b");
    cmd!(a, "LOCK.RELEASE key a");
    assert_eq!(gauges(names), [1, 1, 2, 1]);
}

#[test]
fn a_blocked_request_is_no_repeat_of_one_by_mail() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    assert!(is_nil(&cmd!(a, "LOCK.ACQUIRE key b 60000")));
    let _blocked = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    assert_eq!(queue_of(&mut a, "key"), ["b", "b"]);
    assert_eq!(text(&cmd!(a, "TYPE key")), "mort-lock");
}
