//! The module shows no key's name that the user's key patterns forbid.

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Server, array, as_map, bytes, cmd, command, eventually, int, mail, queue, refused,
    request, text, try_cmd, waiter,
};

/// A connection of the user `u` with these permissions.
fn as_user(server: &Server, rights: &str) -> Conn {
    let mut conn = server.connect();
    cmd!(conn, "ACL SETUSER u reset on nopass {rights}");
    cmd!(conn, "AUTH u any");
    conn
}

/// The keys of a reply of LOCK.TOP.
#[track_caller]
fn keys(reply: &Value) -> Vec<String> {
    let entries = array(reply).iter();
    entries.map(|entry| text(&as_map(entry)["key"])).collect()
}

/// Holds each key, queues this many requests for it, and returns the waiters' connections.
fn wanted(server: &Server, locks: &[(&str, usize)]) -> Vec<Conn> {
    let mut conn = server.connect();
    let mut waiting = Vec::new();
    for (key, waiters) in locks {
        cmd!(conn, "LOCK.ACQUIRE {key} holder 60000");
        let requests = (0..*waiters).map(|n| command!("LOCK.ACQUIRE {key} w{n} 60000 WAIT 0"));
        waiting.extend(server.waiters(requests));
    }
    waiting
}

const LOCKS: [(&str, usize); 4] = [("b:1", 4), ("a:1", 3), ("b:2", 2), ("a:2", 1)];

#[test]
fn top_names_no_key_that_the_user_may_not_read() {
    let server = Server::start();
    let _waiting = wanted(&server, &LOCKS);
    for (patterns, shown) in [
        ("~*", &["b:1", "a:1", "b:2", "a:2"][..]),
        ("~a:*", &["a:1", "a:2"]),
        ("%R~b:*", &["b:1", "b:2"]),
        // A user that may only write cannot use LOCK.INFO either.
        ("%W~b:*", &[]),
        ("~a:1 ~b:2", &["a:1", "b:2"]),
        ("~other:*", &[]),
        ("", &[]),
    ] {
        let mut conn = as_user(&server, &format!("+lock.top {patterns}"));
        assert_eq!(keys(&cmd!(conn, "LOCK.TOP")), shown, "{patterns:?}");
    }
}

#[test]
fn a_client_that_has_not_logged_in_sees_what_the_default_user_may() {
    let server = Server::start();
    let _waiting = wanted(&server, &LOCKS);
    let mut conn = server.connect();
    assert_eq!(keys(&cmd!(conn, "LOCK.TOP")).len(), 4);
    cmd!(conn, "ACL SETUSER default resetkeys ~a:*");
    assert_eq!(keys(&cmd!(conn, "LOCK.TOP")), ["a:1", "a:2"]);
}

#[test]
fn hidden_locks_do_not_count_in_the_count_of_top() {
    let server = Server::start();
    let _waiting = wanted(&server, &LOCKS);
    let mut conn = as_user(&server, "+lock.top ~a:*");
    assert_eq!(keys(&cmd!(conn, "LOCK.TOP COUNT 1")), ["a:1"]);
    assert_eq!(keys(&cmd!(conn, "LOCK.TOP COUNT 2")), ["a:1", "a:2"]);
}

#[test]
fn a_change_of_permissions_applies_to_the_next_call() {
    let server = Server::start();
    let _waiting = wanted(&server, &LOCKS);
    let mut conn = as_user(&server, "+lock.top ~a:*");
    assert_eq!(keys(&cmd!(conn, "LOCK.TOP")).len(), 2);
    let mut root = server.connect();
    cmd!(root, "ACL SETUSER u ~b:1");
    assert_eq!(keys(&cmd!(conn, "LOCK.TOP")), ["b:1", "a:1", "a:2"]);
    cmd!(root, "ACL SETUSER u resetkeys");
    assert!(keys(&cmd!(conn, "LOCK.TOP")).is_empty());
}

#[test]
fn scripts_transactions_and_guards_show_no_more() {
    let server = Server::start();
    let _waiting = wanted(&server, &LOCKS);
    let commands = "+lock.top +lock.guard +lock.acquire +eval +multi +exec";
    let mut conn = as_user(&server, &format!("{commands} ~a:* ~mine"));
    let shown = ["a:1", "a:2"];
    // Maps become flat arrays in a script.
    let script = "local found = {} \
                  for _, entry in ipairs(redis.call('LOCK.TOP')) do found[#found + 1] = entry[2] end \
                  return found";
    let found = cmd!(conn, "EVAL", script, 0);
    let found: Vec<String> = array(&found).iter().map(text).collect();
    assert_eq!(found, shown);
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.TOP");
    assert_eq!(keys(&array(&cmd!(conn, "EXEC"))[0]), shown);
    let token = int(&cmd!(conn, "LOCK.ACQUIRE mine me 60000"));
    let guarded = cmd!(conn, "LOCK.GUARD mine me {token} LOCK.TOP");
    assert_eq!(keys(&guarded), shown);
}

/// A call's cost has a bound: after this many hidden locks it stops.
#[test]
fn top_stops_after_ten_thousand_hidden_locks() {
    const HIDDEN: usize = 10_000;
    let (server, mut conn) = Server::configured("lock.mail-timeout 60000");
    let ask = |conn: &mut Conn, key: &str, owner: &str, mailbox: &str| {
        queue!(conn, mailbox, "LOCK.ACQUIRE {key} {owner} 600000");
    };
    let acquires: Vec<_> = (0..HIDDEN)
        .map(|n| command!("LOCK.ACQUIRE b:{n} h 600000"))
        .collect();
    conn.pipeline(&acquires);
    cmd!(conn, "LOCK.ACQUIRE a:1 h 600000");
    // Among locks with equally many waiters the longest wait stands first.
    let requests: Vec<_> = (1..HIDDEN)
        .map(|n| {
            let mailbox = format!("box{}", n % 10);
            request!(mailbox, 0, "LOCK.ACQUIRE b:{n} x 600000")
        })
        .collect();
    conn.pipeline(&requests);
    ask(&mut conn, "a:1", "w", "box0");
    let mut user = as_user(&server, "+lock.top ~a:*");
    assert_eq!(keys(&cmd!(user, "LOCK.TOP")), ["a:1"]);
    for owner in ["x", "y"] {
        ask(&mut conn, "b:0", owner, "box1");
    }
    assert!(keys(&cmd!(user, "LOCK.TOP")).is_empty());
    // Other users still see all.
    assert_eq!(keys(&cmd!(conn, "LOCK.TOP COUNT 20000")).len(), HIDDEN + 1);
}

#[test]
fn top_shows_no_database_that_the_user_may_not_use() {
    let server = Server::builder().alone().start();
    if !server.version().is_valkey_from(9, 1) {
        return;
    }
    let mut conn = server.connect();
    let mut waiting = Vec::new();
    for db in [0, 1] {
        cmd!(conn, "SELECT {db}");
        cmd!(conn, "LOCK.ACQUIRE key holder 60000");
        let mut other = server.connect();
        cmd!(other, "SELECT {db}");
        other.submit(&command!("LOCK.ACQUIRE key w 60000 WAIT 0"));
        server.await_blocked(&other);
        waiting.push(other);
    }
    let dbs = |conn: &mut Conn| -> Vec<i64> {
        let reply = cmd!(conn, "LOCK.TOP");
        let entries = array(&reply).iter();
        entries.map(|entry| int(&as_map(entry)["db"])).collect()
    };
    let mut user = as_user(&server, "+lock.top ~* alldbs");
    assert_eq!(dbs(&mut user).len(), 2);
    let mut user = as_user(&server, "+lock.top ~* resetdbs db=0");
    assert_eq!(dbs(&mut user), [0]);
    let mut user = as_user(&server, "+lock.top ~* resetdbs db=0,1");
    assert_eq!(dbs(&mut user).len(), 2);
}

#[test]
fn info_of_a_forbidden_key_is_refused_by_the_server() {
    let server = Server::start();
    let _waiting = wanted(&server, &LOCKS);
    let mut conn = as_user(&server, "+lock.info +eval ~a:*");
    assert_eq!(int(&as_map(&cmd!(conn, "LOCK.INFO a:1"))["waiters"]), 3);
    refused!(conn, "NOPERM", "LOCK.INFO b:1");
    let inside = try_cmd!(conn, "EVAL", "return redis.call('LOCK.INFO', 'b:1')", 0);
    assert!(inside.is_err(), "{inside:?}");
}

#[test]
fn a_deadlock_error_names_only_readable_keys_and_counts_the_others() {
    let (server, mut root) = Server::start_connected();
    let mut conn = as_user(&server, "+lock.acquire ~mine:*");
    cmd!(conn, "LOCK.ACQUIRE mine:1 a 60000");
    cmd!(root, "LOCK.ACQUIRE mine:2 b 60000");
    cmd!(root, "LOCK.ACQUIRE secret c 60000");
    let _b = waiter!(server, "LOCK.ACQUIRE secret b 60000 WAIT 0");
    let _c = waiter!(server, "LOCK.ACQUIRE mine:1 c 60000 WAIT 0");
    let error = refused!(conn, "DEADLOCK ", "LOCK.ACQUIRE mine:2 a 60000 WAIT 0");
    let named: Vec<&str> = error.split('\'').skip(1).step_by(2).collect();
    assert_eq!(named, ["mine:2", "mine:1"], "{error}");
    assert!(error.contains("and 1 that"), "{error}");
    assert!(!error.contains("secret"), "{error}");
    let told = try_cmd!(root, "LOCK.ACQUIRE mine:2 a 60000 WAIT 0").unwrap_err();
    assert!(told.contains("'secret'"), "{told}");
    assert!(!told.contains("that"), "{told}");
}

#[test]
fn a_deadlock_letter_names_only_keys_that_its_reader_may_see() {
    let (server, mut root) = Server::start_connected();
    cmd!(root, "LOCK.RLOCK mine:1 b 60000");
    cmd!(root, "LOCK.RLOCK mine:1 c 60000");
    let payload = bytes(&cmd!(root, "DUMP mine:1")).to_vec();
    cmd!(root, "DEL mine:1");
    cmd!(root, "LOCK.WLOCK mine:1 x 60000");
    let mut conn = as_user(&server, "+lock.wlock +lock.mail ~mine:*");
    cmd!(conn, "LOCK.WLOCK mine:2 b 60000");
    queue!(conn, "box", "LOCK.WLOCK mine:1 b 60000");
    cmd!(root, "LOCK.WLOCK secret d 60000");
    let _c = waiter!(server, "LOCK.WLOCK secret c 60000 WAIT 0");
    let _d = waiter!(server, "LOCK.WLOCK mine:2 d 60000 WAIT 0");
    // Now b reads together with c, so its request becomes an upgrade: it waits for c, c for d, and d for b.
    cmd!(root, "RESTORE", "mine:1", 0, payload, "REPLACE");
    let error = eventually("b's request is refused", || {
        let mail = mail!(conn, "box");
        let letter = mail.letters.first()?;
        letter.error.clone()
    });
    assert!(error.starts_with("DEADLOCK "), "{error}");
    assert!(!error.contains("secret"), "{error}");
    assert!(error.contains("and 1 that"), "{error}");
}
