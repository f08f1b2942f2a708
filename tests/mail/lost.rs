//! The connection of a waiting LOCK.MAIL breaks: its box closes a second later, unless somebody asks for it again.
//!
//! Boxes live for a minute here, so whatever closes does so for want of its reader. `other` is a box whose reader is lost as well, later
//! or at the same time: once it has closed, a box that is still there stays.

use mortise_harness::{
    Conn, Server, assert_error, cmd, command, eventually, granted, holders_of, int, mail, queue,
    queue_of, send, waiter,
};

fn long_lived() -> (Server, Conn) {
    Server::configured("lock.mail-timeout 60000")
}

/// A LOCK.MAIL that waits.
fn reader(server: &Server, mailbox: &str) -> Conn {
    let mut reader = server.connect();
    send!(reader, "LOCK.MAIL {mailbox} WAIT 0");
    server.await_blocked(&reader);
    reader
}

/// `other` loses its reader, and closes.
#[track_caller]
fn other_closes(server: &Server, conn: &mut Conn) {
    let boxes = server.gauge("boxes");
    let other = reader(server, "other");
    cmd!(conn, "CLIENT", "KILL", "ID", other.client_id());
    server.await_gauge("boxes", boxes);
}

#[test]
fn a_killed_client_that_waits_by_mail_does_not_keep_others_from_a_free_lock() {
    for kill in [false, true] {
        let (server, mut a) = long_lived();
        cmd!(a, "LOCK.ACQUIRE key a 60000");
        let since = queue!(a, "box", "LOCK.ACQUIRE key b 60000");
        let b = reader(&server, "box");
        let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
        if kill {
            cmd!(a, "CLIENT", "KILL", "ID", b.client_id());
        } else {
            drop(b);
            server.await_gauge("blocked_clients", 1);
        }
        cmd!(a, "LOCK.RELEASE key a");
        granted(&mut c);
        assert!(mail!(a, "box").since > since);
    }
}

#[test]
fn requests_leave_with_the_box_and_a_grant_whose_letter_was_sent_stays() {
    let (server, mut a) = long_lived();
    for (key, owner) in [("told", "b"), ("free", "c")] {
        cmd!(a, "LOCK.ACQUIRE {key} a 60000");
        queue!(a, "box", "LOCK.ACQUIRE {key} {owner} 60000");
    }
    cmd!(a, "LOCK.RELEASE told a");
    let told = mail!(a, "box");
    let mut reader = server.connect();
    let number = told.only().number;
    let since = told.since;
    send!(reader, "LOCK.MAIL box AFTER {since} {number} WAIT 0");
    server.await_blocked(&reader);
    drop(reader);
    server.await_gauge("boxes", 0);
    eventually("its request leaves", || queue_of(&mut a, "free").is_empty());
    assert_eq!(holders_of(&mut a, "told"), ["b"]);
}

#[test]
fn a_call_after_the_loss_keeps_the_box() {
    let (server, mut a) = long_lived();
    // The next call waits, or does not.
    for wait in [&["WAIT", "0"][..], &[]] {
        let lost = reader(&server, "box");
        // In one write, so that nothing comes between.
        let mut again = command!("LOCK.MAIL box");
        again.arg(wait);
        let mut asks = server.connect();
        let kill = command!("CLIENT", "KILL", "ID", lost.client_id());
        asks.send_raw(&[kill.get_packed_command(), again.get_packed_command()].concat());
        assert_eq!(int(&asks.recv()), 1);
        let since = mail!(a, "box").since;
        other_closes(&server, &mut a);
        assert_eq!(mail!(a, "box").since, since, "{wait:?}");
    }
}

#[test]
fn only_the_newest_call_counts() {
    let (server, mut a) = long_lived();
    let older = reader(&server, "box");
    let newer = reader(&server, "box");
    drop(older);
    other_closes(&server, &mut a);
    let since = mail!(a, "box").since;
    // It was answered by the call before, and is closed before it has its reply.
    let last = reader(&server, "box");
    let replies = a.pipeline(&[
        command!("LOCK.MAIL box"),
        command!("CLIENT", "KILL", "ID", last.client_id()),
    ]);
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    other_closes(&server, &mut a);
    assert_eq!(mail!(a, "box").since, since);
    drop(newer);
}

#[test]
fn unblock_ends_the_call_and_keeps_the_box() {
    let (server, mut a) = long_lived();
    for error in ["TIMEOUT", "ERROR"] {
        let unblocked = || {
            let mut ended = reader(&server, "box");
            let id = ended.client_id();
            cmd!(server.connect(), "CLIENT UNBLOCK {id} {error}");
            assert_eq!(ended.try_recv().is_err(), error == "ERROR");
            ended
        };
        unblocked();
        let since = mail!(a, "box").since;
        // The call that was ended is the newest one again.
        let ended = unblocked();
        other_closes(&server, &mut a);
        assert_eq!(mail!(a, "box").since, since, "{error}");
        // Its connection waits for nothing now.
        drop(ended);
        other_closes(&server, &mut a);
        assert_eq!(mail!(a, "box").since, since, "{error}");
    }
}

#[test]
fn a_pause_does_not_count() {
    for mode in ["ALL", "WRITE"] {
        let (server, mut a) = long_lived();
        let lost = reader(&server, "box");
        let mut writes = server.connect();
        cmd!(a, "CLIENT PAUSE 3000 {mode}");
        drop(lost);
        // It runs when the pause ends.
        cmd!(writes, "SET other 1");
        assert_eq!(server.gauge("boxes"), 1, "{mode}");
        server.await_gauge("boxes", 0);
    }
}

#[test]
fn a_call_with_the_number_of_another_box_replies_at_once() {
    let (mut server, mut a) = Server::configured("lock.mail-timeout 60000; appendonly yes");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    // There is no such box, there is another one, and a restart has forgotten it.
    let made = mail!(a, "box AFTER 1 1 WAIT 0");
    let other = mail!(a, "box", "AFTER", made.since - 1, 0, "WAIT", 30_000);
    assert_eq!(other.since, made.since);
    server.restart(mortise_harness::Shutdown::Save);
    let mut a = server.connect();
    let again = mail!(a, "box", "AFTER", made.since, 0, "WAIT", 0);
    assert!(again.since > made.since);
    for told in [made, other, again] {
        assert!(told.letters.is_empty() && told.waited < 20_000, "{told:?}");
    }
}

#[test]
fn a_call_with_the_number_of_another_box_ends_the_one_that_waits() {
    let (server, mut a) = long_lived();
    let mut waits = reader(&server, "box");
    let told = mail!(a, "box AFTER 1 1 WAIT 0");
    assert!(told.waited < 20_000);
    assert_error(waits.try_recv(), "UNBLOCKED ");
    // With the right number it waits.
    let mut right = server.connect();
    send!(right, "LOCK.MAIL", "box", "AFTER", told.since, 0, "WAIT", 0);
    server.await_blocked(&right);
}

#[test]
fn a_hold_that_was_renewed_before_it_was_loaded_is_not_given_back() {
    // A change after that does not make it look untouched, either.
    for changes in [false, true] {
        let (server, mut a) =
            Server::configured("lock.mail-timeout 1500; enable-debug-command yes");
        cmd!(a, "LOCK.ACQUIRE key a 60000");
        queue!(a, "box", "LOCK.ACQUIRE key b 60000");
        cmd!(a, "LOCK.RELEASE key a");
        // The reply shows the grant, whose letter nobody asks for.
        cmd!(a, "LOCK.RENEW key b 60000");
        cmd!(a, "DEBUG RELOAD");
        if changes {
            cmd!(a, "LOCK.RENEW key b 60000");
        }
        server.await_gauge("boxes", 0);
        server.await_gauge("letters", 0);
        assert_eq!(holders_of(&mut a, "key"), ["b"], "{changes}");
    }
}
