//! Boxes: their user, how long they live, and what happens when they close.

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{
    Conn, Mail, Server, assert_error, cmd, command, eventually, eventually_within, granted,
    hold_of, holders_of, mail, queue, queue_of, queued, refused, request, send, wait_for_sync,
    waiter,
};

/// A server whose boxes live for 300 ms without a LOCK.MAIL, and a connection.
fn short_lived() -> (Server, Conn) {
    Server::configured("lock.mail-timeout 300")
}

/// `a` holds `key`, and `b` waits for it by mail in the box `box`. Returns its `since`.
fn queue_b(conn: &mut Conn) -> i64 {
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    queue!(conn, "box", "LOCK.ACQUIRE key b 60000")
}

#[test]
fn an_abandoned_box_closes_and_its_requests_leave() {
    let (server, mut a) = short_lived();
    let since = queue_b(&mut a);
    let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    server.await_gauge("boxes", 0);
    eventually("its request leaves", || queue_of(&mut a, "key") == ["c"]);
    cmd!(a, "LOCK.RELEASE key a");
    granted(&mut c);
    assert!(mail!(a, "box").since > since);
    assert_eq!(server.gauge("waiters_by_mail"), 0);
}

#[test]
fn an_undelivered_grant_is_undone_with_the_box_and_a_delivered_one_stays() {
    let (server, mut a) = short_lived();
    for (key, owner) in [("told", "b"), ("untold", "c")] {
        cmd!(a, "LOCK.ACQUIRE {key} a 60000");
        queue!(a, "box", "LOCK.ACQUIRE {key} {owner} 60000");
    }
    cmd!(a, "LOCK.RELEASE told a");
    assert_eq!(mail!(a, "box").results(), [("b", "granted")]);
    let mut next = waiter!(server, "LOCK.ACQUIRE untold d 60000 WAIT 0");
    cmd!(a, "LOCK.RELEASE untold a");
    granted(&mut next);
    server.await_gauge("boxes", 0);
    assert_eq!(holders_of(&mut a, "told"), ["b"]);
    assert_eq!(holders_of(&mut a, "untold"), ["d"]);
}

#[test]
fn an_undelivered_grant_whose_hold_was_used_since_stays() {
    for renews in [true, false] {
        let (server, mut a) = short_lived();
        queue_b(&mut a);
        cmd!(a, "LOCK.RELEASE key a");
        let token = hold_of(&mut a, "key", "b").expect("a hold").token;
        match renews {
            true => cmd!(a, "LOCK.RENEW key b 60000"),
            false => cmd!(a, "LOCK.GUARD key b {token} SET data 1"),
        };
        server.await_gauge("boxes", 0);
        assert_eq!(holders_of(&mut a, "key"), ["b"]);
    }
}

#[test]
fn undelivered_grants_of_one_hold_whose_boxes_close_one_after_the_other_are_all_undone() {
    let (server, mut a) = Server::configured("lock.mail-timeout 2000");
    cmd!(a, "LOCK.WLOCK key a 60000");
    queue!(a, "box", "LOCK.RLOCK key b 60000");
    // The other box is made, and closes, half a second later.
    cmd!(a, "LOCK.ACQUIRE brief a 500");
    granted(&mut waiter!(server, "LOCK.ACQUIRE brief c 1 WAIT 0"));
    queue!(a, "other", "LOCK.WLOCK key b 60000");
    cmd!(a, "LOCK.RELEASE key a");
    let hold = hold_of(&mut a, "key", "b").expect("b holds by both");
    assert_eq!(hold.counts(), (1, 1));
    eventually("nobody holds", || holders_of(&mut a, "key").is_empty());
}

/// The box of the first grant closes in the turn of the second grant. The client of that grant is killed, which the server notices a turn later.
#[test]
fn an_undelivered_grant_whose_box_closes_and_the_lost_one_that_changed_its_hold_are_both_undone() {
    let server = Server::builder().module_arg("mail-timeout", "1000").start();
    let (mut a, mut busy) = (server.connect(), server.connect());
    // Most attempts hit that turn.
    for attempt in 0..4 {
        let key = format!("key{attempt}");
        cmd!(a, "LOCK.WLOCK {key} a 60000");
        let made = Instant::now();
        queue!(a, "box", "LOCK.RLOCK {key} b 60000");
        let b = waiter!(server, "LOCK.WLOCK {key} b 60000 WAIT 0");
        let kill = command!("CLIENT", "KILL", "ID", b.client_id());
        // The box becomes overdue during this command. The next tick notices, and then the server reads what was sent meanwhile.
        thread::sleep(Duration::from_millis(945).saturating_sub(made.elapsed()));
        send!(busy, "DEBUG SLEEP 0.09");
        thread::sleep(Duration::from_millis(20));
        a.pipeline(&[command!("LOCK.RELEASE {key} a"), kill]);
        busy.recv();
        eventually("nobody holds", || holders_of(&mut a, &key).is_empty());
        server.await_gauge("boxes", 0);
    }
}

#[test]
fn after_a_swap_of_databases_a_grant_is_undone_where_it_is_now() {
    let (_server, mut a) = short_lived();
    queue_b(&mut a);
    cmd!(a, "LOCK.RELEASE key a");
    cmd!(a, "SWAPDB 0 1");
    cmd!(a, "SELECT 1");
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
    eventually("nobody holds", || holders_of(&mut a, "key").is_empty());
}

#[test]
fn a_reader_that_calls_in_time_keeps_the_box() {
    let (_server, mut a) = short_lived();
    let since = queue_b(&mut a);
    for _ in 0..8 {
        assert_eq!(mail!(a, "box WAIT 0").since, since);
    }
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
}

#[test]
fn a_box_whose_delivered_letters_are_never_deleted_closes() {
    let (_server, mut a) = Server::configured("lock.mail-timeout 150");
    let since = queue_b(&mut a);
    cmd!(a, "LOCK.RELEASE key a");
    eventually_within(Duration::from_secs(15), "another box", || {
        mail!(a, "box COUNT 1").since != since
    });
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
}

#[test]
fn a_box_belongs_to_the_user_who_made_it() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "ACL SETUSER u on nopass +@all ~*");
    mail!(a, "box");
    let mut other = server.connect();
    cmd!(other, "AUTH u any");
    refused!(other, "NOPERM ", "LOCK.MAIL box");
    let request = request!("box", 0, "LOCK.ACQUIRE key b 9");
    assert_error(other.try_run(&request), "NOPERM ");
    assert_eq!(holders_of(&mut a, "key"), [""; 0]);
    mail!(other, "own");
    refused!(a, "NOPERM ", "LOCK.MAIL own");
}

#[test]
fn time_in_which_the_server_reads_nothing_does_not_close_a_box() {
    let (_server, mut a) = Server::configured("lock.mail-timeout 1200");
    let since = queue_b(&mut a);
    cmd!(a, "CONFIG SET lua-time-limit 0");
    // Newer servers stop TIME in a script, older ones have no os.clock.
    let script = "local found, clock = pcall(function() return os.clock end); \
                  local time = function() local t = redis.call('TIME'); return t[1] + t[2] / 1000000 end; \
                  local now = found and clock or time; \
                  local began = now(); repeat until now() > began + 2; return 1";
    for _ in 0..2 {
        send!(a, "EVAL", script, 0);
        // Processor time passes slowly on a busy machine.
        let done = a.recv_within(Duration::from_secs(120));
        done.expect("the script ends").expect("it is run");
        assert_eq!(mail!(a, "box").since, since);
    }
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
}

#[test]
fn a_server_that_was_stopped_and_continues_keeps_the_box() {
    let (server, mut a) = short_lived();
    let since = queue_b(&mut a);
    server.stop_signal();
    // Longer than a box lives without a LOCK.MAIL.
    assert!(a.recv_within(Duration::from_millis(1_000)).is_none());
    server.cont_signal();
    assert_eq!(mail!(a, "box").since, since);
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
}

#[test]
fn a_primary_that_becomes_a_replica_drops_its_boxes_and_answers_the_reader() {
    let (server, other) = (Server::start(), Server::start());
    let mut a = server.connect();
    let since = queue_b(&mut a);
    let mut reader = server.connect();
    send!(reader, "LOCK.MAIL box WAIT 0");
    server.await_blocked(&reader);
    cmd!(a, "REPLICAOF", "127.0.0.1", other.port());
    assert_error(reader.try_recv(), "UNBLOCKED ");
    refused!(a, "READONLY ", "LOCK.MAIL box");
    eventually("nobody waits", || {
        server.gauge("waiters") + server.gauge("boxes") == 0
    });
    wait_for_sync(&other, &server);
    cmd!(a, "REPLICAOF NO ONE");
    assert!(mail!(a, "box").since > since);
}

#[test]
fn a_restart_forgets_boxes_and_a_delivered_grant_stays() {
    let (mut server, mut a) = Server::configured("appendonly yes");
    for owner in ["b", "c"] {
        cmd!(a, "LOCK.ACQUIRE {owner} a 60000");
        queue!(a, "box", "LOCK.ACQUIRE {owner} {owner} 60000");
    }
    cmd!(a, "LOCK.RELEASE b a");
    let since = mail!(a, "box").since;
    server.restart(mortise_harness::Shutdown::Save);
    let mut a = server.connect();
    assert_eq!(holders_of(&mut a, "b"), ["b"]);
    let told = mail!(a, "box");
    assert!(told.since > since && told.letters.is_empty(), "{told:?}");
    assert_eq!(queue_of(&mut a, "c"), [""; 0]);
}

#[test]
fn a_request_repeated_with_a_new_box_is_queued_again() {
    let (server, mut a) = short_lived();
    let since = queue_b(&mut a);
    server.await_gauge("boxes", 0);
    assert!(queue!(a, "box", "LOCK.ACQUIRE key b 60000") > since);
    cmd!(a, "LOCK.RELEASE key a");
    assert_eq!(mail!(a, "box").results(), [("b", "granted")]);
}

#[test]
fn a_stall_before_the_last_call_does_not_extend_the_life_of_a_box() {
    let (server, mut a) = Server::configured("lock.mail-timeout 300; enable-debug-command yes");
    // In one write: the call comes before the tick that notices the stall.
    let replies = a.pipeline(&[command!("DEBUG SLEEP 2"), command!("LOCK.MAIL before")]);
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    // A tick has happened meanwhile.
    cmd!(a, "LOCK.ACQUIRE key a 150");
    cmd!(a, "LOCK.ACQUIRE key b 60000 WAIT 0");
    cmd!(a, "LOCK.ACQUIRE other a 60000");
    queue!(a, "after", "LOCK.ACQUIRE other b 60000");
    server.await_gauge("waiters", 0);
    assert_eq!(server.gauge("boxes"), 0, "the earlier one is still there");
}

#[test]
fn a_pause_longer_than_the_time_out_closes_no_box_and_ends_no_request() {
    for kind in ["ALL", "WRITE"] {
        let (_server, mut a) = Server::configured("lock.mail-timeout 1000");
        cmd!(a, "LOCK.ACQUIRE key a 60000");
        // The call comes in time, and the server reads it after the pause.
        let replies = a.pipeline(&[
            request!("box", 0, "LOCK.ACQUIRE key b 60000"),
            command!("CLIENT PAUSE 2500 {kind}"),
            command!("LOCK.MAIL box"),
        ]);
        let [queued_in, _, mail] = &replies[..] else {
            panic!("{replies:?}");
        };
        let since = queued(queued_in.as_ref().unwrap());
        assert_eq!(Mail::read(mail.as_ref().unwrap()).since, since, "{kind}");
        assert_eq!(queue_of(&mut a, "key"), ["b"], "{kind}");
    }
}

/// Both calls are answered in one turn of the event loop, and one of their clients is killed in it.
#[test]
fn a_letter_that_one_of_two_readers_got_is_delivered() {
    let server = Server::builder().module_arg("mail-timeout", "600").start();
    let (mut a, mut one, mut other) = (server.connect(), server.connect(), server.connect());
    queue_b(&mut a);
    cmd!(a, "LOCK.RELEASE key a");
    let gone = one.client_id();
    server.stop_signal();
    send!(one, "LOCK.MAIL box");
    send!(other, "LOCK.MAIL box");
    send!(a, "CLIENT KILL ID {gone}");
    server.cont_signal();
    a.recv();
    assert_eq!(Mail::read(&other.recv()).results(), [("b", "granted")]);
    server.await_gauge("boxes", 0);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
}

#[test]
fn the_name_of_a_box_has_up_to_64_bytes() {
    let (_server, mut conn) = Server::start_connected();
    let longest = "b".repeat(64);
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let since = queue!(conn, &longest, "LOCK.ACQUIRE key b 60000");
    assert_eq!(mail!(conn, "{longest}").since, since);
    for name in ["b".repeat(65), String::new()] {
        let error = refused!(conn, "ERR ", "LOCK.MAIL", name);
        assert!(error.contains("64"), "{error}");
    }
}
