//! How a LOCK.MACQUIRE counts in limits, and which users may send it.

use std::time::Duration;

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Conn, Server, array, assert_error, cmd, command, eventually, granted, hold_of, int, is_nil,
    mail, queue_of, queued, refused, text, waiter,
};

use super::{A, B, C, all_free, nobody_waits, release, several};

const Z: &str = "{k}z";

#[test]
fn it_counts_once_among_blocked_requests() {
    let (server, mut conn) = Server::configured("lock.max-waiters 2");
    cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
    let _first = waiter!(server, "LOCK.MACQUIRE m 60000 3 {A} {B} {C} WAIT 0");
    let mut second = waiter!(server, "LOCK.MACQUIRE n 60000 3 {A} {B} {C} WAIT 0");
    refused!(conn, "MAXWAITERS ", "LOCK.MACQUIRE o 60000 1 {A} WAIT 0");
    for key in [A, B, C] {
        assert_eq!(queue_of(&mut conn, key), ["m", "n"]);
    }
    assert_eq!(server.gauge("waiters"), 2);
    assert_eq!(server.gauge("blocked_clients"), 2);
    cmd!(conn, "CLIENT", "UNBLOCK", second.client_id());
    assert!(is_nil(&second.recv()));
    let _third = waiter!(server, "LOCK.MACQUIRE o 60000 3 {A} {B} {C} WAIT 0");
}

#[test]
fn it_counts_once_for_each_key_among_requests_by_mail() {
    let (server, mut conn) = Server::configured("lock.max-queued 50");
    cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
    let ask = |owner: &str, keys: &[&str], mailbox: &str| {
        several(owner, keys, &["WAIT", "0", "MAIL", mailbox])
    };
    // A box may have five places.
    queued(&conn.run(&ask("m", &[A, B, C], "{k}box")));
    assert_error(conn.try_run(&ask("n", &[A, B, C], "{k}box")), "MAXWAITERS ");
    for key in [A, B, C] {
        assert_eq!(queue_of(&mut conn, key), ["m"]);
    }
    // A repeat does not count again.
    queued(&conn.run(&ask("m", &[A, B, C], "{k}box")));
    queued(&conn.run(&ask("n", &[A, B], "{k}box")));
    assert_error(conn.try_run(&ask("o", &[B], "{k}box")), "MAXWAITERS ");
    // It may move to another box with enough places.
    queued(&conn.run(&ask("o", &[A, B, C], "{k}other")));
    let moves = conn.try_run(&ask("m", &[A, B, C], "{k}other"));
    assert_error(moves, "MAXWAITERS ");
    queued(&conn.run(&ask("n", &[A, B], "{k}other")));
    queued(&conn.run(&ask("p", &[A, B], "{k}box")));
    assert_eq!(server.gauge("waiters_by_mail"), 4);
    // An ended request no longer counts once its letter is deleted.
    cmd!(conn, "LOCK.LEAVE {C} m");
    queued(&conn.run(&ask("q", &[A, B, C], "{k}box")));
    cmd!(conn, "LOCK.RELEASE {B} h");
    for owner in ["n", "o", "p", "q"] {
        eventually("it is granted", || hold_of(&mut conn, B, owner).is_some());
        for key in [A, B, C] {
            cmd!(conn, "LOCK.RELEASE {key} {owner}");
        }
    }
    for mailbox in ["{k}box", "{k}other"] {
        let mail = mail!(conn, "{mailbox}");
        assert_eq!(mail.letters.len(), 2);
        mail!(conn, mailbox, "AFTER", mail.since, mail.letters[1].number);
    }
    // On the whole server, two boxes and 48 places are left.
    cmd!(conn, "LOCK.ACQUIRE {A} h 60000");
    let keys: Vec<String> = (0..4).map(|n| format!("{{k}}{n}")).collect();
    let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    keys.push(A);
    // Eight boxes with five places each, and two empty ones.
    for n in 0..8 {
        queued(&conn.run(&ask(&format!("r{n}"), &keys, &format!("{{k}}box{n}"))));
    }
    assert_error(conn.try_run(&ask("s", &[A], "{k}box")), "MAXWAITERS ");
    cmd!(conn, "LOCK.LEAVE {A} r3");
    queued(&conn.run(&ask("s", &keys, "{k}box")));
    assert_error(conn.try_run(&ask("t", &[A], "{k}other")), "MAXWAITERS ");
}

#[test]
fn it_needs_permission_for_every_key_and_leave_for_one() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "ACL SETUSER u on nopass +@all ~{{k}}a ~{{k}}b");
    let mut user = server.connect();
    cmd!(user, "AUTH u any");
    refused!(user, "NOPERM ", "LOCK.MACQUIRE m 60000 2 {A} {C}");
    refused!(user, "NOPERM ", "LOCK.MACQUIRE m 60000 2 {C} {A} WAIT 0");
    int(&cmd!(user, "LOCK.MACQUIRE x 60000 2 {A} {B}"));
    let mut m = waiter!(server, "LOCK.MACQUIRE m 60000 3 {C} {A} {B} WAIT 0");
    refused!(user, "NOPERM ", "LOCK.LEAVE {C} m");
    assert_eq!(int(&cmd!(user, "LOCK.LEAVE {B} m")), 1);
    assert!(is_nil(&m.recv()));
    assert!(queue_of(&mut conn, C).is_empty());
    // The error names only the keys that the user may see.
    for (key, owner) in [(C, "c"), ("{k}z", "z")] {
        int(&cmd!(conn, "LOCK.ACQUIRE {key} {owner} 60000"));
    }
    let _c = waiter!(server, "LOCK.ACQUIRE {{k}}z c 60000 WAIT 0");
    let _z = waiter!(server, "LOCK.ACQUIRE {A} z 60000 WAIT 0");
    cmd!(conn, "ACL SETUSER u ~{{k}}c");
    refused!(
        user,
        "NOPERM ",
        "LOCK.MACQUIRE x 60000 2 {C} {{k}}b2 WAIT 0"
    );
    let error = refused!(user, "DEADLOCK ", "LOCK.MACQUIRE x 60000 1 {C} WAIT 0");
    assert!(
        error.contains("'{k}c'") && !error.contains("{k}z"),
        "{error}"
    );
    assert!(error.contains(" and 1 that"), "{error}");
}

#[test]
fn the_server_knows_the_keys_of_macquire() {
    let (_server, mut conn) = Server::builder().alone().start_connected();
    for (command, keys) in [
        ("LOCK.MACQUIRE m 1000 3 {k}a {k}b {k}c WAIT 0", [A, B, C]),
        (
            "LOCK.GUARD {k}c o 1 LOCK.MACQUIRE m 1000 2 {k}a {k}b WAIT 0",
            [C, A, B],
        ),
    ] {
        let found = cmd!(conn, "COMMAND GETKEYS {command}");
        let found: Vec<String> = array(&found).iter().map(text).collect();
        assert_eq!(found, keys);
    }
}

#[test]
fn inside_a_guard_it_takes_all_or_nothing_and_never_waits() {
    let (server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE {A} h 60000"));
    let guarded = |owner: &str, first: &str| {
        command!("LOCK.GUARD {A} h {token} LOCK.MACQUIRE {owner} 60000 2 {first} {C} WAIT 0")
    };
    assert!(is_nil(&conn.run(&guarded("m", A))));
    let taken = int(&conn.run(&guarded("m", B)));
    assert!(taken > token);
    for key in [B, C] {
        assert_eq!(hold_of(&mut conn, key, "m").unwrap().token, taken);
    }
    // The guard's own lock is held by another token.
    assert_error(conn.try_run(&guarded("h", A)), "ERR the owner holds one");
    // By mail it is queued, inside a guard too.
    let by_mail =
        command!("LOCK.GUARD {A} h {token} LOCK.MACQUIRE n 60000 2 {B} {C} WAIT 0 MAIL {{k}}box");
    queued(&conn.run(&by_mail));
    for key in [B, C] {
        cmd!(conn, "LOCK.GUARD {key} m {taken} LOCK.RELEASE {key} m");
    }
    let mail = mail!(conn, "{{k}}box WAIT 2000");
    assert_eq!(mail.results(), [("n", "granted")]);
    nobody_waits(&server, &[A, B, C]);
}

#[test]
fn many_requests_in_one_queue_do_not_delay_the_server() {
    /// The variable is read when this is compiled.
    const MANY: usize = match option_env!("MORTISE_LONG") {
        Some(_) => 100_000,
        None => 20_000,
    };
    let (server, mut conn) = Server::configured("lock.max-queued 3000000; lock.mail-timeout 60000");
    cmd!(conn, "LOCK.ACQUIRE {A} h 600000");
    let asks: Vec<_> = (0..MANY)
        .map(|n| command!("LOCK.MACQUIRE m{n} 60000 2 {{k}}own{n} {A} WAIT 0 MAIL {{k}}box"))
        .collect();
    for part in asks.chunks(5_000) {
        for reply in conn.pipeline(part) {
            queued(&reply.unwrap());
        }
    }
    assert_eq!(server.gauge("waiters"), MANY as i64);
    let mut last = waiter!(server, "LOCK.MACQUIRE last 60000 2 {A} {{k}}own7 WAIT 0");
    cmd!(conn, "LOCK.RELEASE {A} h");
    for n in 0..100 {
        let (owner, own) = (format!("m{n}"), format!("{{k}}own{n}"));
        eventually("its turn has come", || {
            hold_of(&mut conn, A, &owner).is_some()
        });
        release(&mut conn, &owner, &[A, &own]);
    }
    // All leave with their box, and the blocked one is granted.
    cmd!(conn, "CONFIG SET lock.mail-timeout 100");
    let reply = last.recv_within(Duration::from_secs(90));
    int(&reply.expect("a busy machine takes a while").unwrap());
    assert_eq!(server.gauge("waiters"), 0);
    cmd!(conn, "LOCK.RELEASE {A} last");
    cmd!(conn, "LOCK.RELEASE {{k}}own7 last");
    let own = format!("{{k}}own{}", MANY - 1);
    all_free(&mut conn, &[A, "{k}own7", &own]);
    nobody_waits(&server, &[A]);
}

/// `n` holds `z`, `x` holds `b`, and `m` waits for `a` and `z`. `x` waits at the free lock `a`, only because `m` stands ahead of it: when `n` asks for
/// `b`, `x` has to overtake `m`.
fn before_a_move(server: &Server) -> (Conn, [Conn; 2]) {
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE {Z} n 60000");
    cmd!(conn, "LOCK.ACQUIRE {B} x 60000");
    let m = waiter!(server, "LOCK.MACQUIRE m 60000 2 {A} {Z} WAIT 0");
    let x = waiter!(server, "LOCK.ACQUIRE {A} x 60000 WAIT 0");
    (conn, [m, x])
}

/// What `n` may ask for in that situation.
fn asks_for_b(more: &[&str]) -> [Cmd; 3] {
    let one = |name: &str| {
        let mut command = command!("{name} {B} n 60000 HOLDS 1");
        command.arg(more);
        command
    };
    [
        one("LOCK.ACQUIRE"),
        one("LOCK.RLOCK"),
        several("n", &[B, C], more),
    ]
}

#[track_caller]
fn nobody_has_moved(conn: &mut Conn) {
    assert_eq!(queue_of(conn, A), ["m", "x"]);
    assert!(hold_of(conn, A, "x").is_none());
    for key in [B, C] {
        assert!(queue_of(conn, key).is_empty(), "{key}");
    }
}

#[test]
fn a_request_for_which_there_is_no_room_moves_nobody() {
    let server = Server::builder().module_arg("max-waiters", "2").start();
    let (mut conn, [_m, mut x]) = before_a_move(&server);
    for ask in asks_for_b(&["WAIT", "100"]) {
        assert_error(conn.try_run(&ask), "MAXWAITERS ");
        nobody_has_moved(&mut conn);
    }
    cmd!(conn, "CONFIG SET lock.max-waiters 3");
    let _n = server.waiter(&asks_for_b(&["WAIT", "0"])[0]);
    granted(&mut x);
    assert_eq!(queue_of(&mut conn, A), ["m"]);
}

#[test]
fn a_request_by_mail_for_which_there_is_no_room_moves_nobody() {
    // A box may have one place.
    let server = Server::builder().module_arg("max-queued", "10").start();
    let (mut conn, [_m, mut x]) = before_a_move(&server);
    let by_mail = ["WAIT", "0", "MAIL", "{k}box"];
    let mut other = command!("LOCK.ACQUIRE {Z} other 60000 HOLDS 1");
    queued(&conn.run(other.arg(&by_mail)));
    for ask in asks_for_b(&by_mail) {
        assert_error(conn.try_run(&ask), "MAXWAITERS ");
        nobody_has_moved(&mut conn);
    }
    let [ask, ..] = asks_for_b(&["WAIT", "0", "MAIL", "{k}another"]);
    queued(&conn.run(&ask));
    granted(&mut x);
}

#[test]
fn a_request_that_cannot_wait_moves_nobody() {
    let server = Server::start();
    let (mut conn, [_m, _x]) = before_a_move(&server);
    for ask in asks_for_b(&[]) {
        assert!(is_nil(&conn.run(&ask)));
        nobody_has_moved(&mut conn);
    }
}

#[test]
fn a_null_is_not_counted_as_a_deadlock() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE {Z} n 60000");
    cmd!(conn, "LOCK.ACQUIRE {B} h 60000");
    let _m = waiter!(server, "LOCK.MACQUIRE m 60000 2 {A} {B} WAIT 0");
    let _first = waiter!(server, "LOCK.ACQUIRE {A} w##1 60000 WAIT 0");
    let _second = waiter!(server, "LOCK.ACQUIRE {Z} w##2 60000 WAIT 0");
    // `a` is free, but `n` would wait there for the task `w##`, which waits for `n`.
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE {A} n 60000")));
    assert!(is_nil(&cmd!(conn, "LOCK.MACQUIRE n 60000 2 {A} {C}")));
    assert_eq!(server.gauge("total_deadlocks"), 0);
    refused!(conn, "DEADLOCK ", "LOCK.ACQUIRE {A} n 60000 WAIT 100");
    assert_eq!(server.gauge("total_deadlocks"), 1);
}
