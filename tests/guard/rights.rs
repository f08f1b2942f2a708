//! The command inside runs with the permissions of the user that sent the guard.

use mortise_harness::redis::Value;
use mortise_harness::{
    Conn, Server, array, as_map, assert_error, cmd, command, error_line, int, text, try_cmd,
};

use super::{guard, held};

/// A server where the lock `key` is held, and a connection of a user with these permissions.
fn as_user(rights: &str) -> (Server, Conn, i64) {
    let (server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "SET data secret");
    cmd!(conn, "ACL SETUSER u on nopass {rights}");
    let mut conn = server.connect();
    cmd!(conn, "AUTH u any");
    (server, conn, token)
}

#[track_caller]
fn assert_no_permission(reply: Result<Value, String>) {
    assert_error(reply, "NOPERM");
}

#[test]
fn a_user_with_permission_for_both_commands_may_run_one_inside_the_other() {
    let (_server, mut conn, token) = as_user("~key ~data +lock.guard +set +get");
    cmd!(conn, "LOCK.GUARD key a {token} SET data 1");
    let got = cmd!(conn, "LOCK.GUARD key a {token} GET data");
    assert_eq!(text(&got), "1");
    assert_eq!(int(&cmd!(conn, "LOCK.GUARD key a {token}")), token);
}

#[test]
fn without_the_command_inside_a_guard_is_refused_and_nothing_runs() {
    let (server, mut conn, token) = as_user("~* +lock.guard +get");
    assert_no_permission(guard(&mut conn, token, "SET data 1"));
    assert_no_permission(guard(&mut conn, token, "LOCK.RELEASE key a"));
    assert_no_permission(guard(&mut conn, token, "FLUSHALL"));
    assert_eq!(text(&cmd!(server.connect(), "GET data")), "secret");
}

/// Permissions for keys and the guard, with which some commands run inside and others are refused. Without one inside, the guard is asked alone.
const CASES: [(&str, &[&str], &[&str]); 5] = [
    ("~* +@all -lock.guard", &[], &["GET data", ""]),
    (
        "~key ~own:* +@all",
        &["SET own:1 x"],
        &["GET data", "SET data 1", "MSET own:1 x data 1"],
    ),
    ("~data +@all", &[], &["GET data", ""]),
    ("~key %R~data +@all", &["GET data"], &["SET data 1"]),
    // To read the key of the lock is enough.
    ("%R~key ~data +@all", &["SET data 1", ""], &["DEL key"]),
];

#[test]
fn permissions_for_both_keys_and_the_guard_are_required() {
    for (rights, allowed, refused) in CASES {
        let (server, mut conn, token) = as_user(rights);
        for inside in refused {
            assert_no_permission(guard(&mut conn, token, inside));
        }
        assert_eq!(text(&cmd!(server.connect(), "GET data")), "secret");
        for inside in allowed {
            let reply = guard(&mut conn, token, inside);
            assert!(reply.is_ok(), "{rights}: {inside}: {reply:?}");
        }
    }
}

#[test]
fn a_category_of_commands_allows_and_forbids_the_guard() {
    let (server, mut conn, token) = as_user("~* +@all -@write");
    let mut operator = server.connect();
    if try_cmd!(operator, "ACL CAT lock").is_err() {
        // This server has no categories for modules.
        return;
    }
    let read = command!("LOCK.GUARD key a {token} GET data");
    let write = command!("LOCK.GUARD key a {token} SET data 1");
    assert_no_permission(conn.try_run(&read));
    cmd!(operator, "ACL SETUSER u +@lock");
    assert_eq!(text(&conn.run(&read)), "secret");
    assert_no_permission(conn.try_run(&write));
    cmd!(operator, "ACL SETUSER u -@lock");
    assert_no_permission(conn.try_run(&read));
}

#[test]
fn in_transactions_and_scripts_the_permissions_are_the_callers() {
    let rights = "~* +lock.guard +get +multi +exec +eval";
    let (server, mut conn, token) = as_user(rights);
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.GUARD key a {token} GET data");
    cmd!(conn, "LOCK.GUARD key a {token} SET data 1");
    let replies = cmd!(conn, "EXEC");
    let [read, written] = array(&replies) else {
        panic!("{replies:?}")
    };
    assert_eq!(text(read), "secret");
    let error = error_line(written).expect("refused");
    assert!(error.starts_with("NOPERM"), "{error}");

    let script = "return redis.call('LOCK.GUARD', KEYS[1], 'a', ARGV[1], unpack(ARGV, 2))";
    let read = cmd!(conn, "EVAL", script, 2, "key", "data", token, "GET", "data");
    assert_eq!(text(&read), "secret");
    let written = try_cmd!(
        conn, "EVAL", script, 2, "key", "data", token, "SET", "data", 1
    );
    assert_no_permission(written);
    assert_eq!(text(&cmd!(server.connect(), "GET data")), "secret");
}

#[test]
fn a_denial_inside_is_written_to_the_acl_log() {
    let (server, mut conn, token) = as_user("~* +lock.guard");
    assert_no_permission(guard(&mut conn, token, "GET data"));
    let log = cmd!(server.connect(), "ACL LOG");
    let entry = as_map(&array(&log)[0]);
    assert_eq!(text(&entry["object"]), "get");
    assert_eq!(text(&entry["username"]), "u");
}
