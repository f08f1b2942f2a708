//! Nested guards: the server refuses any number of them, and does not crash.

use mortise_harness::redis::Cmd;
use mortise_harness::{Server, array, cmd, int, text};

use super::{assert_refused_by_name, held};

/// `LOCK.GUARD key a token`, repeated, and then a command.
fn nested(start: &[&str], times: usize, token: i64, end: &[&str]) -> Cmd {
    let token = token.to_string();
    let mut command = Cmd::new();
    command.arg(start);
    for _ in 0..times {
        command.arg(&["LOCK.GUARD", "key", "a", &token]);
    }
    command.arg(end);
    command
}

#[test]
fn a_hundred_thousand_nested_guards_are_refused_without_a_crash() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    for times in [2, 3, 1_000, 100_000] {
        let guards = nested(&[], times, token, &["SET", "data", "1"]);
        assert_refused_by_name(conn.try_run(&guards), "LOCK.GUARD");
        // A transaction, a script, COMMAND and ACL DRYRUN each find the keys in another way.
        let script = "return redis.pcall(unpack(ARGV))";
        if times <= 1_000 {
            let eval = ["EVAL", script, "1", "key"];
            let guards = nested(&eval, times, token, &["GET", "data"]);
            assert_refused_by_name(conn.try_run(&guards), "LOCK.GUARD");
        }
        let getkeys = nested(&["COMMAND", "GETKEYS"], times, token, &["GET", "data"]);
        let keys = conn.run(&getkeys);
        assert_eq!(text(&array(&keys)[0]), "key");
        let dry_run = ["ACL", "DRYRUN", "default"];
        let dry = nested(&dry_run, times, token, &["GET", "data"]);
        assert_eq!(text(&conn.run(&dry)), "OK");
        cmd!(conn, "MULTI");
        conn.run(&nested(&[], times, token, &["SET", "data", "1"]));
        cmd!(conn, "EXEC");
    }
    assert_eq!(int(&cmd!(conn, "EXISTS data")), 0);
    assert_eq!(int(&cmd!(conn, "LOCK.GUARD key a {token}")), token);
}

#[test]
fn nested_guards_from_a_user_with_key_patterns_are_refused_without_a_crash() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "ACL SETUSER u on nopass ~key +@all");
    cmd!(conn, "AUTH", "u", "");
    let guards = nested(&[], 100_000, token, &["SET", "data", "1"]);
    assert_refused_by_name(conn.try_run(&guards), "LOCK.GUARD");
}
