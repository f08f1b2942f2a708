//! The connection of a waiting LOCK.MAIL breaks: its box closes a second later, unless somebody asks for it again.
//!
//! Boxes live for a minute here, so whatever closes does so for want of its reader. `other` is a box whose reader is lost as well, later
//! or at the same time: once it has closed, a box that is still there stays.

use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, holders_of, int, mail, queue, queue_of, send,
    waiter,
};

fn long_lived() -> Server {
    Server::builder()
        .module_arg("mail-timeout", "60000")
        .start()
}

/// A LOCK.MAIL that waits.
fn reader(server: &Server, mailbox: &str) -> Conn {
    let mut reader = server.connect();
    send!(reader, "LOCK.MAIL", mailbox, "WAIT", 0);
    server.await_blocked(&reader);
    reader
}

/// `other` loses its reader, and closes.
#[track_caller]
fn other_closes(server: &Server, conn: &mut Conn) {
    let boxes = server.gauge("boxes");
    let other = reader(server, "other");
    cmd!(conn, "CLIENT", "KILL", "ID", other.client_id());
    eventually("the other box closes", || server.gauge("boxes") == boxes);
}

#[test]
fn a_killed_client_that_waits_by_mail_does_not_keep_others_from_a_free_lock() {
    for kill in [false, true] {
        let server = long_lived();
        let mut a = server.connect();
        cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
        let since = queue!(a, "box", "LOCK.ACQUIRE", "key", "b", 60_000);
        let b = reader(&server, "box");
        let mut c = waiter!(server, "LOCK.ACQUIRE", "key", "c", 60_000, "WAIT", 0);
        if kill {
            cmd!(a, "CLIENT", "KILL", "ID", b.client_id());
        } else {
            drop(b);
            eventually("the connection is closed", || {
                server.gauge("blocked_clients") == 1
            });
        }
        cmd!(a, "LOCK.RELEASE", "key", "a");
        granted(&mut c);
        assert!(mail!(a, "box").since > since);
    }
}

#[test]
fn requests_leave_with_the_box_and_a_grant_whose_letter_was_sent_stays() {
    let server = long_lived();
    let mut a = server.connect();
    for (key, owner) in [("told", "b"), ("free", "c")] {
        cmd!(a, "LOCK.ACQUIRE", key, "a", 60_000);
        queue!(a, "box", "LOCK.ACQUIRE", key, owner, 60_000);
    }
    cmd!(a, "LOCK.RELEASE", "told", "a");
    let told = mail!(a, "box");
    let mut reader = server.connect();
    let number = told.only().number;
    send!(
        reader,
        "LOCK.MAIL",
        "box",
        "AFTER",
        told.since,
        number,
        "WAIT",
        0
    );
    server.await_blocked(&reader);
    drop(reader);
    eventually("the box closes", || server.gauge("boxes") == 0);
    eventually("its request leaves", || queue_of(&mut a, "free").is_empty());
    assert_eq!(holders_of(&mut a, "told"), ["b"]);
}

#[test]
fn a_call_after_the_loss_keeps_the_box() {
    let server = long_lived();
    let mut a = server.connect();
    // The next call waits, or does not.
    for wait in [&["WAIT", "0"][..], &[]] {
        let lost = reader(&server, "box");
        // In one write, so that nothing comes between.
        let mut again = command!("LOCK.MAIL", "box");
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
    let server = long_lived();
    let mut a = server.connect();
    let older = reader(&server, "box");
    let newer = reader(&server, "box");
    drop(older);
    other_closes(&server, &mut a);
    let since = mail!(a, "box").since;
    // It was answered by the call before, and is closed before it has its reply.
    let last = reader(&server, "box");
    let replies = a.pipeline(&[
        command!("LOCK.MAIL", "box"),
        command!("CLIENT", "KILL", "ID", last.client_id()),
    ]);
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    other_closes(&server, &mut a);
    assert_eq!(mail!(a, "box").since, since);
    drop(newer);
}

#[test]
fn unblock_ends_the_call_and_keeps_the_box() {
    let server = long_lived();
    let mut a = server.connect();
    for error in [&[][..], &["ERROR"]] {
        let mut ended = reader(&server, "box");
        let mut unblock = command!("CLIENT", "UNBLOCK", ended.client_id());
        unblock.arg(error);
        a.run(&unblock);
        assert_eq!(ended.try_recv().is_err(), !error.is_empty());
        let since = mail!(a, "box").since;
        // The call that was ended is the newest one again.
        let mut ended = reader(&server, "box");
        let mut unblock = command!("CLIENT", "UNBLOCK", ended.client_id());
        unblock.arg(error);
        a.run(&unblock);
        assert_eq!(ended.try_recv().is_err(), !error.is_empty());
        other_closes(&server, &mut a);
        assert_eq!(mail!(a, "box").since, since, "{error:?}");
        // Its connection waits for nothing now.
        drop(ended);
        other_closes(&server, &mut a);
        assert_eq!(mail!(a, "box").since, since, "{error:?}");
    }
}

#[test]
fn a_pause_does_not_count() {
    for mode in ["ALL", "WRITE"] {
        let server = long_lived();
        let mut a = server.connect();
        let lost = reader(&server, "box");
        let mut writes = server.connect();
        cmd!(a, "CLIENT", "PAUSE", 3_000, mode);
        drop(lost);
        // It runs when the pause ends.
        cmd!(writes, "SET", "other", 1);
        assert_eq!(server.gauge("boxes"), 1, "{mode}");
        eventually("the box closes", || server.gauge("boxes") == 0);
    }
}

#[test]
fn a_call_with_the_number_of_another_box_replies_at_once() {
    let mut server = Server::builder()
        .module_arg("mail-timeout", "60000")
        .config("appendonly", "yes")
        .start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    // There is no such box, there is another one, and a restart has forgotten it.
    let made = mail!(a, "box", "AFTER", 1, 1, "WAIT", 0);
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
    let server = long_lived();
    let mut a = server.connect();
    let mut waits = reader(&server, "box");
    let told = mail!(a, "box", "AFTER", 1, 1, "WAIT", 0);
    assert!(told.waited < 20_000);
    let error = waits.try_recv().unwrap_err();
    assert!(error.starts_with("UNBLOCKED "), "{error}");
    // With the right number it waits.
    let mut right = server.connect();
    send!(right, "LOCK.MAIL", "box", "AFTER", told.since, 0, "WAIT", 0);
    server.await_blocked(&right);
}

#[test]
fn a_hold_that_was_renewed_before_it_was_loaded_is_not_given_back() {
    // A change after that does not make it look untouched, either.
    for changes in [false, true] {
        let server = Server::builder()
            .module_arg("mail-timeout", "1500")
            .config("enable-debug-command", "yes")
            .start();
        let mut a = server.connect();
        cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
        queue!(a, "box", "LOCK.ACQUIRE", "key", "b", 60_000);
        cmd!(a, "LOCK.RELEASE", "key", "a");
        // The reply shows the grant, whose letter nobody asks for.
        cmd!(a, "LOCK.RENEW", "key", "b", 60_000);
        cmd!(a, "DEBUG", "RELOAD");
        if changes {
            cmd!(a, "LOCK.RENEW", "key", "b", 60_000);
        }
        eventually("the box closes", || server.gauge("boxes") == 0);
        eventually("its letter leaves", || server.gauge("letters") == 0);
        assert_eq!(holders_of(&mut a, "key"), ["b"], "{changes}");
    }
}
