//! One lock that is open.

use mortise_harness::{cmd, eventually, hold_of, queue, waiter};

use crate::{builder, top};

#[test]
fn an_open_lock_shows_its_holders_and_its_queue_in_order() {
    let server = builder().alone().start();
    let mut a = server.connect();
    cmd!(a, "SELECT", 3);
    let token = mortise_harness::int(&cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000));
    cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "bob", 30_000);
    let mut c = server.connect();
    cmd!(c, "SELECT", 3);
    mortise_harness::send!(c, "LOCK.RLOCK stock:42 carol 30000 WAIT 600000");
    server.await_blocked(&c);

    let terminal = top(&[&server.url()]);
    terminal.await_line(&["stock:42", "3", "both"]);
    terminal.press("\r");
    terminal.await_line(&["stock:42", "db 3 on", "write, 1 holder, 2 waiters"]);
    terminal.await_line(&["alice", "2", "0", &token.to_string(), "9 m"]);
    terminal.await_line(&["1", "bob", "write", "no limit", "30.0 s", "mail"]);
    let client = format!("client {}", c.client_id());
    terminal.await_line(&["2", "carol", "read", "9 m", "30.0 s", &client]);

    // It shows each change, and in the end that nothing is left.
    cmd!(a, "LOCK.RELEASE", "stock:42", "alice", "ALL");
    terminal.await_line(&["stock:42", "write, 1 holder, 1 waiter"]);
    cmd!(a, "LOCK.RELEASE", "stock:42", "bob");
    c.recv();
    terminal.await_line(&["stock:42", "read, 1 holder, 0 waiters"]);
    cmd!(a, "LOCK.RELEASE", "stock:42", "carol");
    terminal.await_line(&["stock:42", "nobody holds it, nobody waits"]);
    terminal.press("\x1b");
    terminal.await_texts(&["Nobody waits for a lock."]);
}

#[test]
fn a_lock_that_nobody_waits_for_is_opened_by_its_name_and_broken() {
    let server = builder().start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "forgotten", "alice", 600_000);
    let terminal = top(&[&server.url()]);
    terminal.await_texts(&["Nobody waits for a lock.", "o by name"]);
    terminal.press("oforgottem\x7fn");
    terminal.await_texts(&["open the lock: forgotten"]);
    terminal.press("\r");
    terminal.await_line(&["forgotten", "db 0 on", "write, 1 holder, 0 waiters"]);
    terminal.press("b");
    terminal.await_texts(&["Break this hold?", "owner  alice", "Nobody waits."]);
    terminal.press("y");
    terminal.await_texts(&["Broken: alice no longer holds forgotten"]);
    terminal.await_line(&["forgotten", "nobody holds it, nobody waits"]);
    assert!(hold_of(&mut a, "forgotten", "alice").is_none());
    // Escape leaves the screen, and the question as well.
    terminal.press("\x1b");
    terminal.await_texts(&["Nobody waits for a lock."]);
    terminal.press("of");
    terminal.await_texts(&["open the lock: f"]);
    terminal.press("\x1b");
    terminal.await_texts(&["Nobody waits for a lock.", "o by name"]);
}

#[test]
fn a_name_of_any_bytes_is_typed_as_it_is_shown() {
    let server = builder().alone().start();
    let mut a = server.connect();
    cmd!(a, "SELECT", 3);
    cmd!(a, "LOCK.ACQUIRE", b"a\xff \\n\n", "alice", 600_000);
    // The database is that of the URL.
    let terminal = top(&[&format!("{}3", server.url())]);
    terminal.await_texts(&["locks 1", "Nobody waits for a lock."]);
    terminal.press("oa\\xff \\\\n\\n\r");
    terminal.await_line(&["a\\xff \\\\n\\n", "db 3 on", "1 holder"]);
}

#[test]
fn a_long_queue_shows_its_first_waiters_and_the_number_of_the_others() {
    let server = builder().start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "k", "alice", 600_000);
    for number in 1..=300 {
        queue!(a, "box", "LOCK.ACQUIRE k w{number:03} 30000");
    }
    let terminal = top(&[&server.url()]);
    terminal.await_line(&["k ", "300", "mail", "alice"]);
    terminal.press("\r");
    terminal.await_texts(&["300 waiters", "and 100 more", "w001", "w002"]);
    // The end of what was asked for.
    terminal.press("\x1b[F");
    terminal.await_texts(&["w200", "and 100 more"]);
    terminal.press("\x1b[H");
    terminal.await_texts(&["alice", "w001"]);
}

#[test]
fn a_pause_freezes_the_picture_until_it_ends() {
    let server = builder().start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "k", "alice", 600_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE", "k", "bob", 600_000, "WAIT", 0);
    let terminal = top(&[&server.url()]);
    terminal.await_line(&["k ", "alice"]);
    terminal.press("p");
    terminal.await_texts(&["PAUSED"]);
    cmd!(a, "LOCK.RELEASE", "k", "alice");
    b.recv();
    let asked = || server.calls("LOCK.TOP");
    for _ in 0..3 {
        let before = asked();
        eventually("the server has been asked again", || asked() != before);
    }
    terminal.await_line(&["k ", "alice"]);
    terminal.press("p");
    terminal.await_texts(&["Nobody waits for a lock."]);
}
