//! Breaking a hold, after asking.

use mortise_harness::{cmd, granted, hold_of, int, is_nil, queue, waiter};

use crate::terminal::Terminal;
use crate::{builder, top};

/// The program, which has asked whether to break `alice`'s hold.
fn asked(url: &str) -> Terminal {
    let terminal = top(&[url]);
    terminal.await_line(&["stock:42", "alice"]);
    terminal.press("b");
    terminal.await_texts(&["Break this hold?", "r  revoke it"]);
    terminal
}

#[test]
fn a_hold_is_broken_after_a_yes_and_the_next_waiter_is_granted() {
    let server = builder().start();
    let mut a = server.connect();
    let token = int(&cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000));
    let mut b = waiter!(server, "LOCK.ACQUIRE stock:42 bob 600000 WAIT 0");
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "carol", 600_000);

    let terminal = top(&[&server.url()]);
    terminal.await_line(&["stock:42", "alice"]);
    terminal.press("b");
    // All of it at once: a screen may be drawn in part.
    terminal.await_texts(&[
        "Break this hold?",
        "y  break it",
        "lock   stock:42",
        "owner  alice",
        &format!("token  {token}"),
        "2 wait",
    ]);
    terminal.press("y");
    assert!(granted(&mut b) > token);
    terminal.await_texts(&["Broken: alice no longer holds stock:42"]);
    terminal.await_line(&["stock:42", "bob"]);
    assert!(hold_of(&mut a, "stock:42", "alice").is_none());
}

#[test]
fn a_revoked_hold_stays_until_its_owner_releases_it() {
    let server = builder().start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE stock:42 bob 600000 WAIT 0");
    let terminal = asked(&server.url());
    terminal.press("r");
    terminal.await_texts(&["Revoked: alice holds stock:42 for"]);
    let hold = hold_of(&mut a, "stock:42", "alice").expect("alice still holds it");
    assert!(hold.revoked);
    assert!(is_nil(&cmd!(a, "LOCK.RENEW", "stock:42", "alice", 600_000)));
    cmd!(a, "LOCK.LEAVE", "stock:42", "alice");
    granted(&mut b);
}

#[test]
fn anything_but_an_r_or_a_yes_breaks_nothing() {
    let server = builder().start();
    let mut a = server.connect();
    let token = int(&cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000));
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "bob", 600_000);
    let terminal = top(&[&server.url()]);
    terminal.await_line(&["stock:42", "alice"]);
    for no in ["n", "\r", "Y", " "] {
        terminal.press("b");
        terminal.await_texts(&["Break this hold?"]);
        terminal.press(no);
        terminal.await_texts(&["Nothing was broken"]);
        let hold = hold_of(&mut a, "stock:42", "alice").unwrap();
        assert_eq!(hold.token, token);
    }
}

#[test]
fn the_chosen_one_of_many_readers_is_broken_whatever_its_count() {
    let server = builder().start();
    let mut a = server.connect();
    for owner in ["ann", "ben", "ben", "cat"] {
        cmd!(a, "LOCK.RLOCK", "report", owner, 600_000);
    }
    queue!(a, "box", "LOCK.ACQUIRE", "report", "eve", 600_000);
    let terminal = top(&[&server.url()]);
    terminal.await_line(&["report", "ann +2"]);
    terminal.press("b");
    terminal.await_texts(&["3 owners hold report: open it and choose one"]);
    terminal.press("\r");
    terminal.await_line(&["ben", "2"]);
    terminal.press("j");
    terminal.press("b");
    terminal.await_texts(&["Break this hold?", "owner  ben"]);
    terminal.press("y");
    terminal.await_texts(&[
        "Broken: ben no longer holds report",
        "read, 2 holders, 1 waiter",
    ]);
    let left = mortise_harness::holders_of(&mut a, "report");
    assert_eq!(left, ["ann", "cat"]);
    // A waiter has nothing that could be broken.
    terminal.press("\x1b[F");
    terminal.press("b");
    terminal.await_texts(&["A waiter holds nothing: choose a holder"]);
}

#[test]
fn a_hold_granted_after_the_question_is_not_broken() {
    let server = builder().start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE stock:42 bob 600000 WAIT 0");
    let terminal = asked(&server.url());
    cmd!(a, "LOCK.RELEASE", "stock:42", "alice");
    granted(&mut b);
    // She is back behind bob, and holds by another token.
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "alice", 600_000);
    cmd!(a, "LOCK.RELEASE", "stock:42", "bob");
    let again = hold_of(&mut a, "stock:42", "alice").unwrap();
    terminal.press("y");
    terminal.await_texts(&["Nothing to break: alice no longer held stock:42 by that token"]);
    let hold = hold_of(&mut a, "stock:42", "alice").unwrap();
    assert_eq!(hold.token, again.token);
}

#[test]
fn a_hold_that_may_not_be_broken_is_shown_with_the_server_s_reason() {
    let server = builder().start();
    let mut a = server.connect();
    cmd!(a, "ACL SETUSER eyes on >secret ~* +@all -lock.release");
    cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "bob", 600_000);
    let terminal = asked(&format!("redis://eyes:secret@{}/", server.addr()));
    terminal.press("y");
    terminal.await_texts(&["Not broken: NOPERM"]);
    assert!(hold_of(&mut a, "stock:42", "alice").is_some());
}
