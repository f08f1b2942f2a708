//! The commands that may be inside a guard, and those that may not.

use mortise_harness::redis::Value;
use mortise_harness::{Conn, Server, cmd, int, is_nil, lock_info, text, try_cmd};

use super::{assert_refused_by_name, held};

/// Runs `words` under the lock.
fn guard(conn: &mut Conn, token: i64, words: &[&str]) -> Result<Value, String> {
    let token = token.to_string();
    conn.try_cmd(&[&["LOCK.GUARD", "key", "a", &token], words].concat())
}

#[test]
fn a_command_that_scripts_may_not_call_is_refused_by_name() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    let refused: &[&[&str]] = &[
        &["MULTI"],
        &["EXEC"],
        &["DISCARD"],
        &["WATCH", "key"],
        &["SUBSCRIBE", "channel"],
        &["PSUBSCRIBE", "*"],
        &["SSUBSCRIBE", "channel"],
        &["UNSUBSCRIBE"],
        &["EVAL", "return 1", "0"],
        &["EVAL_RO", "return 1", "0"],
        &["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
        &["FCALL", "f", "0"],
        &["FCALL_RO", "f", "0"],
        &["SCRIPT", "FLUSH"],
        &["FUNCTION", "FLUSH"],
        &["AUTH", "secret"],
        &["HELLO", "3"],
        &["RESET"],
        &["MONITOR"],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["CLIENT", "PAUSE", "1000"],
        &["CLIENT", "REPLY", "OFF"],
        &["CONFIG", "SET", "appendonly", "yes"],
        &["ACL", "SETUSER", "somebody"],
        &["DEBUG", "SLEEP", "0"],
        &["MODULE", "LIST"],
        &["REPLICAOF", "NO", "ONE"],
        &["FAILOVER"],
        &["SAVE"],
        &["BGSAVE"],
        &["BGREWRITEAOF"],
        &["SHUTDOWN", "NOSAVE"],
        &["SYNC"],
        &["PSYNC", "?", "-1"],
    ];
    for words in refused {
        assert_refused_by_name(guard(&mut conn, token, words), words[0]);
    }
    // The connection and the lock still work.
    assert_eq!(
        guard(&mut conn, token, &["PING"]),
        Ok(Value::SimpleString("PONG".into()))
    );
}

#[test]
fn a_guard_inside_a_guard_is_refused_by_name() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    let (own, other) = (token.to_string(), held(&mut conn, "other").to_string());
    let inside: &[&[&str]] = &[
        &["LOCK.GUARD", "key", "a", &own],
        &["LOCK.GUARD", "key", "a", &own, "SET", "data", "1"],
        &["lock.guard", "other", "a", &other, "SET", "data", "1"],
    ];
    for words in inside {
        assert_refused_by_name(guard(&mut conn, token, words), "LOCK.GUARD");
    }
    assert!(is_nil(&cmd!(conn, "GET", "data")));
}

/// Null, as in a transaction, or refused by name.
#[track_caller]
fn assert_does_not_block(reply: Result<Value, String>, name: &str) {
    match reply {
        Ok(reply) => assert!(is_nil(&reply), "{name}: {reply:?}"),
        error => assert_refused_by_name(error, name),
    }
}

#[test]
fn a_command_inside_that_would_block_replies_at_once() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    let blocking: &[&[&str]] = &[
        &["BLPOP", "list", "0"],
        &["BRPOP", "list", "0"],
        &["BLMOVE", "list", "to", "LEFT", "LEFT", "0"],
        &["BLMPOP", "0", "1", "list", "LEFT"],
        &["BZPOPMIN", "zset", "0"],
        &["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"],
    ];
    for words in blocking {
        assert_does_not_block(guard(&mut conn, token, words), words[0]);
    }
    match guard(&mut conn, token, &["WAIT", "1", "0"]) {
        Ok(reply) => assert_eq!(int(&reply), 0),
        error => assert_refused_by_name(error, "WAIT"),
    }
    let mut b = server.connect();
    cmd!(b, "LOCK.ACQUIRE", "of-b", "b", 60_000);
    let wanted: &[&str] = &["LOCK.ACQUIRE", "of-b", "a", "60000", "WAIT", "0"];
    assert_eq!(guard(&mut conn, token, wanted), Ok(Value::Nil));
    assert_eq!(lock_info(&mut conn, "of-b").unwrap().waiters, 0);
}

#[test]
fn a_blocking_command_inside_returns_what_is_available() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    for (words, refusable) in [
        (&["BLPOP", "list", "0"][..], true),
        (&["LPOP", "list"], false),
    ] {
        cmd!(conn, "RPUSH", "list", "element");
        match guard(&mut conn, token, words) {
            Ok(reply) => assert!(format!("{reply:?}").contains("element"), "{reply:?}"),
            error if refusable => assert_refused_by_name(error, words[0]),
            error => panic!("{error:?}"),
        }
        cmd!(conn, "DEL", "list");
    }
}

#[test]
fn a_failed_command_inside_replies_its_own_error() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    cmd!(conn, "SET", "string", "text");
    let failing: &[&[&str]] = &[
        &["INCR", "string"],
        &["LPUSH", "string", "x"],
        &["SET", "string"],
        &["SET", "string", "x", "NX", "XX"],
        &["GET"],
        &["NOSUCH", "string"],
        &["OBJECT", "NOSUCH", "string"],
        &["LOCK.RELEASE", "string", "a"],
        &["LOCK.ACQUIRE", "other", "a", "0"],
    ];
    for words in failing {
        let bare = conn.try_cmd(words).unwrap_err();
        assert_eq!(guard(&mut conn, token, words), Err(bare), "{words:?}");
    }
    assert_eq!(text(&cmd!(conn, "GET", "string")), "text");
}

#[test]
fn an_unknown_command_name_of_any_bytes_is_an_error() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    cmd!(conn, "SET", "data", "value");
    let names: &[&[u8]] = &[b"", b"GET\0", b"GET\0x", b"\0", b"GE\r\nT", b"GET "];
    for name in names {
        let error = try_cmd!(conn, "LOCK.GUARD", "key", "a", token, *name, "data").unwrap_err();
        assert!(
            error.starts_with("ERR unknown command"),
            "{name:?}: {error}"
        );
    }
    let long = "x".repeat(1_000_000);
    let error = try_cmd!(conn, "LOCK.GUARD", "key", "a", token, long, "data").unwrap_err();
    assert!(error.starts_with("ERR unknown command"), "{error}");
}

#[test]
fn a_guard_does_not_change_the_state_of_the_connection() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    cmd!(conn, "LOCK.GUARD", "key", "a", token, "SELECT", 3);
    cmd!(conn, "SET", "data", "value");
    let keyspace = server.info("keyspace");
    assert!(keyspace.contains_key("db0") && !keyspace.contains_key("db3"));
}

#[test]
fn a_command_inside_runs_in_the_callers_database() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "SELECT", 5);
    let token = held(&mut conn, "key");
    cmd!(conn, "LOCK.GUARD key a {token} SET data value");
    assert_eq!(text(&cmd!(conn, "GET", "data")), "value");
    assert_eq!(
        text(&cmd!(conn, "LOCK.GUARD", "key", "a", token, "GET", "data")),
        "value"
    );
}

#[test]
fn internal_commands_of_the_module_are_refused_inside() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    for words in [
        &["LOCK.APPLY", "key", "x"][..],
        &["LOCK.SETTLE", "0", "key"],
    ] {
        assert_refused_by_name(guard(&mut conn, token, words), words[0]);
    }
}

#[test]
fn a_renamed_command_is_refused_like_the_original() {
    let server = Server::builder()
        .config("rename-command", "EVAL lua")
        .config("rename-command", "MULTI begin")
        .start();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    for words in [&["lua", "return 1", "0"][..], &["begin"]] {
        let error = guard(&mut conn, token, words).unwrap_err();
        assert!(error.contains("not allowed"), "{error}");
    }
}

#[test]
fn migrate_inside_moves_keys_away_even_the_locks_own() {
    let (server, other) = (Server::start(), Server::start());
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    cmd!(conn, "SET", "data", "value");
    let port = other.port().to_string();
    let migrate = [
        "MIGRATE",
        "127.0.0.1",
        &port,
        "",
        "0",
        "5000",
        "KEYS",
        "data",
        "key",
    ];
    assert_eq!(guard(&mut conn, token, &migrate), Ok(Value::Okay));
    assert_eq!(int(&cmd!(conn, "DBSIZE")), 0);
    assert!(
        guard(&mut conn, token, &[])
            .unwrap_err()
            .starts_with("NOTHELD ")
    );
    let mut there = other.connect();
    let got = guard(&mut there, token, &["GET", "data"]).unwrap();
    assert_eq!(text(&got), "value");
}

#[test]
fn restore_over_the_locks_own_key_works_inside_as_outside() {
    let server = Server::start();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    let dump = mortise_harness::bytes(&guard(&mut conn, token, &["DUMP", "key"]).unwrap());
    let restored = cmd!(
        conn,
        "LOCK.GUARD",
        "key",
        "a",
        token,
        "RESTORE",
        "key",
        0,
        &dump[..],
        "REPLACE"
    );
    assert_eq!(restored, Value::Okay);
    assert_eq!(int(&guard(&mut conn, token, &[]).unwrap()), token);
    cmd!(
        conn,
        "LOCK.GUARD",
        "key",
        "a",
        token,
        "RESTORE",
        "copy",
        0,
        dump
    );
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "copy", "a")), 0);
}
