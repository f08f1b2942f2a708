//! The list of locks with waiters.

use std::path::Path;

use mortise_harness::{Server, cmd, queue, waiter};

use crate::terminal::{Terminal, line_with};
use crate::{TOP, builder, top};

#[test]
fn the_list_shows_who_holds_a_lock_and_who_waits_for_it_and_how() {
    let server = builder().start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000);
    let _b = waiter!(server, "LOCK.ACQUIRE", "stock:42", "bob", 1000, "WAIT", 0);
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "carol", 1000);
    cmd!(a, "LOCK.RLOCK", "report", "dora", 600_000);
    cmd!(a, "LOCK.RLOCK", "report", "emil", 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", "report", "fay", 1000);

    let terminal = top(&[&server.url()]);
    let screen = terminal.await_texts(&["stock:42", "report", "1 server", "grants 0"]);
    let titles = [
        "LOCK", "WAITING", "LONGEST", "BY", "MODE", "HELD BY", "LEASE",
    ];
    assert!(line_with(&screen, &titles).is_some(), "{screen}");
    let numbers = [
        "locks 2",
        "holders 3",
        "waiters 3",
        "by mail 2",
        "blocked 1",
        "boxes 1",
    ];
    assert!(line_with(&screen, &numbers).is_some(), "{screen}");
    let stock = line_with(&screen, &["stock:42", "2", "both", "write", "alice", "9 m"]);
    assert!(stock.is_some(), "{screen}");
    let report = line_with(&screen, &["report", "1", "mail", "read", "dora +1", "9 m"]);
    assert!(report.is_some(), "{screen}");
    assert!(
        screen.find("stock:42") < screen.find("report"),
        "the longest queue first:\n{screen}"
    );
}

#[test]
fn the_list_shows_rates_and_follows_changes() {
    let server = builder().start();
    let mut a = server.connect();
    let terminal = top(&[&server.url()]);
    terminal.await_texts(&["Nobody waits for a lock.", "grants 0"]);

    cmd!(a, "LOCK.ACQUIRE", "k", "alice", 600_000);
    let mut b = waiter!(server, "LOCK.ACQUIRE", "k", "bob", 600_000, "WAIT", 0);
    terminal.await_line(&["k ", "alice"]);
    cmd!(a, "LOCK.RELEASE", "k", "alice");
    b.recv();
    terminal.await_texts(&["Nobody waits for a lock."]);

    // Somebody is granted all the time, until that is seen.
    terminal.await_screen("there are grants in a second", |screen| {
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "l", "alice", 1000);
        cmd!(conn, "LOCK.RELEASE", "l", "alice");
        line_with(screen, &["a second:", "grants", "releases"])
            .is_some_and(|line| !line.contains("grants 0 ") && !line.contains("grants - "))
    });
}

#[test]
fn s_sorts_by_the_longest_wait_and_the_selection_stays_on_its_lock() {
    let server = builder().start();
    let mut a = server.connect();
    for key in ["old", "crowded"] {
        cmd!(a, "LOCK.ACQUIRE", key, "alice", 600_000);
    }
    queue!(a, "box", "LOCK.ACQUIRE", "old", "bob", 1000);
    let before = server.info("server")["uptime_in_seconds"].clone();
    mortise_harness::eventually("bob has waited for a while", || {
        server.info("server")["uptime_in_seconds"] != before
    });
    for name in ["carol", "dora"] {
        queue!(a, "box", "LOCK.ACQUIRE", "crowded", name, 1000);
    }
    let first = |screen: &str, one: &str, other: &str| screen.find(one) < screen.find(other);
    let terminal = top(&[&server.url()]);
    let screen = terminal.await_texts(&["old", "crowded"]);
    assert!(first(&screen, "\ncrowded", "\nold"), "{screen}");
    terminal.press("s");
    terminal.await_screen("the oldest is first", |screen| {
        first(screen, "\nold", "\ncrowded")
    });
    // What was chosen first is chosen still: Enter opens it.
    terminal.press("\r");
    terminal.await_line(&["crowded", "db 0", "2 waiters"]);
}

#[test]
fn a_filter_keeps_locks_with_its_text_in_name_or_holder() {
    let server = builder().start();
    let mut a = server.connect();
    for (key, owner) in [
        ("stock:1", "alice"),
        ("stock:2", "bob"),
        ("cart:1", "BOBBY"),
    ] {
        cmd!(a, "LOCK.ACQUIRE", key, owner, 600_000);
        queue!(a, "box", "LOCK.ACQUIRE", key, "waiter", 1000);
    }
    let terminal = top(&[&server.url()]);
    terminal.await_texts(&["stock:1", "stock:2", "cart:1"]);
    terminal.press("/bob\r");
    terminal.await_screen("those of bob are left", |screen| {
        !screen.contains("stock:1") && screen.contains("stock:2") && screen.contains("cart:1")
    });
    terminal.await_texts(&["only bob"]);
    terminal.press("/by");
    terminal.await_texts(&["show only: bobby"]);
    terminal.press("x");
    terminal
        .await_texts(&["No lock with waiters, and no holder of one, has \"bobbyx\" in its name."]);
    terminal.press("\x1b");
    terminal.await_texts(&["stock:1", "stock:2", "cart:1"]);
}

#[test]
fn a_filter_finds_locks_beyond_those_with_the_most_waiters() {
    let server = builder().start();
    let mut a = server.connect();
    for (key, owner, waiters) in [
        ("crowded:1", "alice", 3),
        ("crowded:2", "bob", 3),
        ("rare:1", "carol", 2),
        ("rare:2", "dora", 1),
    ] {
        cmd!(a, "LOCK.ACQUIRE", key, owner, 600_000);
        for number in 0..waiters {
            let waiter = format!("w{number}");
            queue!(a, "box", "LOCK.ACQUIRE", key, waiter, 1000);
        }
    }
    let terminal = top(&[&server.url(), "--count", "2"]);
    terminal.await_screen("two are sent", |screen| {
        screen.contains("crowded:2") && !screen.contains("rare")
    });
    terminal.press("/rare:2");
    terminal.await_line(&["rare:2", "1", "dora"]);
    terminal.press("\r\x1b");
    terminal.await_line(&["crowded:1", "3", "alice"]);
    terminal.press("/carol\r");
    terminal.await_line(&["rare:1", "2", "carol"]);
    // Of those that have it, as many are shown as without it.
    terminal.press("\x1b");
    terminal.await_line(&["crowded:1", "3", "alice"]);
    terminal.press("/r\r");
    terminal.await_screen("two are shown", |screen| {
        screen.contains("crowded:2") && !screen.contains("rare")
    });
}

#[test]
fn names_of_any_bytes_are_shown_and_do_nothing_to_the_terminal() {
    let server = builder().start();
    let mut a = server.connect();
    let key = b"\x1b[2Jpwned\n\xff \xe2\x80\xaex";
    let owner = b"\x1b]0;title\x07\x9b31m";
    cmd!(a, "LOCK.ACQUIRE", &key[..], &owner[..], 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", &key[..], "bob", 1000);
    let terminal = top(&[&server.url()]);
    terminal.resize(140, 24);
    let (shown, holder) = (r"\x1b[2Jpwned\n\xff \u{202e}x", r"\x1b]0;title\x07\x9b31m");
    terminal.await_line(&[shown, holder]);
    terminal.press("\r");
    terminal.await_line(&[shown, "db 0", "1 holder"]);
    terminal.press("b");
    terminal.await_texts(&["Break this hold?", shown, holder]);
    let raw = terminal.raw();
    let wrote = |bytes: &[u8]| raw.windows(bytes.len()).any(|window| window == bytes);
    assert!(!wrote(b"\x1b[2Jpwned") && !wrote(b"\x1b]0;") && !wrote("\u{202e}".as_bytes()));
}

#[test]
fn the_list_works_in_a_terminal_of_any_size() {
    let server = builder().start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "stock:42", "alice", 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", "stock:42", "bob", 1000);
    let terminal = top(&[&server.url()]);
    terminal.await_texts(&["stock:42", "alice"]);
    for (columns, lines) in [(20, 6), (9, 2), (1, 1), (30, 5)] {
        terminal.resize(columns, lines);
        // Each is drawn before the next: the keys do something at any size.
        terminal.press("?");
        terminal.press("x");
    }
    terminal.await_texts(&["stock:42"]);
    terminal.resize(100, 24);
    terminal.await_line(&["stock:42", "alice"]);
}

#[test]
fn no_color_turns_colours_off() {
    let server = Server::start();
    let colored = |raw: &[u8]| {
        let text = String::from_utf8_lossy(raw).into_owned();
        let mut sequences = text
            .split("\x1b[")
            .skip(1)
            .filter_map(|rest| rest.split_once('m'));
        // 39 and 49 are the terminal's own.
        sequences.any(|(codes, _)| {
            let mut codes = codes.split(';');
            codes.any(|code| matches!(code.parse(), Ok(30..=38 | 40..=48 | 90..=107)))
        })
    };
    let args = [&*server.url()];
    let plain = Terminal::start(Path::new(TOP), &args, &[("NO_COLOR", "1")]);
    plain.await_texts(&["Nobody waits for a lock."]);
    assert!(!colored(&plain.raw()));
    let usual = Terminal::start(Path::new(TOP), &args, &[]);
    usual.await_texts(&["Nobody waits for a lock."]);
    assert!(colored(&usual.raw()));
}
