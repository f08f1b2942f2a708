//! How many requests by mail may wait, and which are refused beyond that.

use mortise_harness::redis::Value;
use mortise_harness::{
    Server, assert_error, cmd, holders_of, int, mail, queue, request, send, try_cmd,
};

/// Checks that the request is refused, for a reason of which the error names this part.
#[track_caller]
fn refused(reply: Result<Value, String>, part: &str) {
    let error = assert_error(reply, "MAXWAITERS ");
    assert!(error.contains(part), "{error}");
}

#[test]
fn a_tenth_of_the_limit_is_the_most_for_one_box() {
    let (_server, mut a) = Server::configured("lock.max-queued 20");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    for owner in ["b", "c"] {
        queue!(a, "box", "LOCK.ACQUIRE key {owner} 60000");
    }
    let third = request!("box", 0, "LOCK.ACQUIRE key d 60000");
    refused(a.try_run(&third), "a tenth");
    // A letter counts like its request.
    cmd!(a, "LOCK.RELEASE key a");
    refused(a.try_run(&third), "a tenth");
    // A repeat of a queued request does not count again.
    queue!(a, "box", "LOCK.ACQUIRE key c 60000");
    let told = mail!(a, "box");
    mail!(a, "box", "AFTER", told.since, told.only().number);
    queue!(a, "box", "LOCK.ACQUIRE key d 60000");
}

#[test]
fn a_request_that_moves_to_another_box_needs_a_free_place_there() {
    let (_server, mut a) = Server::configured("lock.max-queued 20");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    for owner in ["c", "d"] {
        queue!(a, "full", "LOCK.ACQUIRE key {owner} 60000");
    }
    let moves = request!("full", 0, "LOCK.ACQUIRE key b 60000");
    refused(a.try_run(&moves), "a tenth");
    // It keeps waiting with its box. It can move to a box with a free place.
    cmd!(a, "LOCK.LEAVE key d");
    queue!(a, "full", "LOCK.ACQUIRE key b 60000");
    cmd!(a, "LOCK.RELEASE key a");
    assert_eq!(mail!(a, "full").results(), [("b", "granted")]);
    assert_eq!(mail!(a, "box").letters, []);
}

#[test]
fn requests_letters_and_boxes_count_in_the_limit() {
    let (server, mut a) = Server::configured("lock.max-queued 50");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    for mailbox in 0..25 {
        queue!(a, mailbox, "LOCK.ACQUIRE key w{mailbox} 60000");
    }
    refused(try_cmd!(a, "LOCK.MAIL another"), "lock.max-queued");
    refused(
        a.try_run(&request!(3, 0, "LOCK.ACQUIRE key x 9")),
        "lock.max-queued",
    );
    // A grant does not count.
    let granted = a.run(&request!("another", 0, "LOCK.ACQUIRE free x 9000"));
    assert!(int(&granted) > 0);
    assert_eq!(holders_of(&mut a, "free"), ["x"]);
    assert_eq!(server.gauge("waiters"), 25);
}

#[test]
fn blocked_requests_do_not_count_in_the_limit_and_waiting_readers_count_as_blocked() {
    let (server, mut a) = Server::configured("lock.max-queued 50; lock.max-waiters 1");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    let mut reader = server.connect();
    send!(reader, "LOCK.MAIL box WAIT 0");
    server.await_blocked(&reader);
    refused(try_cmd!(a, "LOCK.MAIL other WAIT 0"), "lock.max-waiters");
    refused(
        try_cmd!(a, "LOCK.ACQUIRE key c 9000 WAIT 0"),
        "lock.max-waiters",
    );
    queue!(a, "other", "LOCK.ACQUIRE key d 60000");
    // A newer call for the same box replaces the older one.
    send!(a, "LOCK.MAIL box WAIT 20");
    assert_error(reader.try_recv(), "UNBLOCKED ");
    a.recv();
}

#[test]
fn mail_works_when_memory_is_full() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    cmd!(a, "CONFIG SET maxmemory 1");
    cmd!(a, "LOCK.RELEASE key a");
    assert_eq!(mail!(a, "box").results(), [("b", "granted")]);
    let error = a.try_run(&request!("box", 0, "LOCK.ACQUIRE key c 9"));
    assert!(error.unwrap_err().starts_with("OOM "));
    assert_eq!(int(&cmd!(a, "LOCK.LEAVE key b FOR 1000")), 1);
}

#[test]
fn a_refused_request_creates_no_box_and_deletes_no_letter() {
    let (server, mut a) = Server::configured("lock.max-queued 10; lock.max-waiters 0");
    cmd!(a, "SET string x");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    cmd!(a, "LOCK.ACQUIRE other b 60000");
    queue!(a, "box", "LOCK.ACQUIRE other a 60000");
    let request = |key: &str, wait: u64| request!("new", wait, "LOCK.ACQUIRE {key} b 9");
    for (key, code) in [("string", "WRONGTYPE "), ("key", "DEADLOCK ")] {
        let error = a.try_run(&request(key, 0)).unwrap_err();
        assert!(error.starts_with(code), "{error}");
    }
    refused(try_cmd!(a, "LOCK.MAIL new WAIT 0"), "lock.max-waiters");
    assert_eq!(server.gauge("boxes"), 1);

    // An undelivered denial stays when the next request is refused.
    cmd!(a, "LOCK.LEAVE other a");
    a.run(&request!("box", 1, "LOCK.ACQUIRE key c 9"));
    server.await_gauge("letters", 1);
    let again = a.try_run(&request!("box", 0, "LOCK.ACQUIRE key c 9"));
    refused(again, "a tenth");
    assert_eq!(mail!(a, "box").results(), [("c", "denied")]);
}

#[test]
fn with_a_limit_below_10_each_box_has_room_for_one() {
    let (_server, mut a) = Server::configured("lock.max-queued 5");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    for mailbox in ["one", "two"] {
        queue!(a, mailbox, "LOCK.ACQUIRE key {mailbox} 60000");
        let more = request!(mailbox, 0, "LOCK.ACQUIRE key more 60000");
        refused(a.try_run(&more), "a tenth");
    }
    // A box and a request are two.
    let third = request!("three", 0, "LOCK.ACQUIRE key three 60000");
    refused(a.try_run(&third), "lock.max-queued");
}
