//! The commands that may be inside a guard, and those that may not.

use mortise_harness::redis::Value;
use mortise_harness::{
    Server, bytes, cmd, command, int, is_nil, lock_info, refused, text, try_cmd,
};

use super::{assert_not_held, assert_refused_by_name, guard, held};

#[test]
fn a_command_that_scripts_may_not_call_is_refused_by_name() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let refused = [
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH key",
        "SUBSCRIBE channel",
        "PSUBSCRIBE *",
        "SSUBSCRIBE channel",
        "UNSUBSCRIBE",
        "EVAL return 0",
        "EVAL_RO return 0",
        "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
        "FCALL f 0",
        "FCALL_RO f 0",
        "SCRIPT FLUSH",
        "FUNCTION FLUSH",
        "AUTH secret",
        "HELLO 3",
        "RESET",
        "MONITOR",
        "CLIENT KILL TYPE normal",
        "CLIENT PAUSE 1000",
        "CLIENT REPLY OFF",
        "CONFIG SET appendonly yes",
        "ACL SETUSER somebody",
        "DEBUG SLEEP 0",
        "MODULE LIST",
        "REPLICAOF NO ONE",
        "FAILOVER",
        "SAVE",
        "BGSAVE",
        "BGREWRITEAOF",
        "SHUTDOWN NOSAVE",
        "SYNC",
        "PSYNC ? -1",
    ];
    for line in refused {
        assert_refused_by_name(guard(&mut conn, token, line), name_of(line));
    }
    // The connection and the lock still work.
    let pong = guard(&mut conn, token, "PING").unwrap();
    assert_eq!(text(&pong), "PONG");
}

#[test]
fn a_guard_inside_a_guard_is_refused_by_name() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let other = held(&mut conn, "other");
    for inside in [
        format!("LOCK.GUARD key a {token}"),
        format!("LOCK.GUARD key a {token} SET data 1"),
        format!("lock.guard other a {other} SET data 1"),
    ] {
        assert_refused_by_name(guard(&mut conn, token, &inside), "LOCK.GUARD");
    }
    assert!(is_nil(&cmd!(conn, "GET data")));
}

fn name_of(line: &str) -> &str {
    line.split(' ').next().unwrap()
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
    let (server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let blocking = [
        "BLPOP list 0",
        "BRPOP list 0",
        "BLMOVE list to LEFT LEFT 0",
        "BLMPOP 0 1 list LEFT",
        "BZPOPMIN zset 0",
        "XREAD BLOCK 0 STREAMS stream $",
    ];
    for line in blocking {
        assert_does_not_block(guard(&mut conn, token, line), name_of(line));
    }
    match guard(&mut conn, token, "WAIT 1 0") {
        Ok(reply) => assert_eq!(int(&reply), 0),
        error => assert_refused_by_name(error, "WAIT"),
    }
    let mut b = server.connect();
    cmd!(b, "LOCK.ACQUIRE of-b b 60000");
    let wanted = "LOCK.ACQUIRE of-b a 60000 WAIT 0";
    assert_eq!(guard(&mut conn, token, wanted), Ok(Value::Nil));
    assert_eq!(lock_info(&mut conn, "of-b").unwrap().waiters, 0);
}

#[test]
fn a_blocking_command_inside_returns_what_is_available() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    for (line, refusable) in [("BLPOP list 0", true), ("LPOP list", false)] {
        cmd!(conn, "RPUSH list element");
        match guard(&mut conn, token, line) {
            Ok(reply) => assert!(format!("{reply:?}").contains("element"), "{reply:?}"),
            error if refusable => assert_refused_by_name(error, name_of(line)),
            error => panic!("{error:?}"),
        }
        cmd!(conn, "DEL list");
    }
}

#[test]
fn a_failed_command_inside_replies_its_own_error() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "SET string text");
    let failing = [
        "INCR string",
        "LPUSH string x",
        "SET string",
        "SET string x NX XX",
        "GET",
        "NOSUCH string",
        "OBJECT NOSUCH string",
        "LOCK.RELEASE string a",
        "LOCK.ACQUIRE other a 0",
    ];
    for line in failing {
        let bare = try_cmd!(conn, "{line}").unwrap_err();
        assert_eq!(guard(&mut conn, token, line), Err(bare), "{line}");
    }
    assert_eq!(text(&cmd!(conn, "GET string")), "text");
}

#[test]
fn an_unknown_command_name_of_any_bytes_is_an_error() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "SET data value");
    let names: &[&[u8]] = &[b"", b"GET\0", b"GET\0x", b"\0", b"GE\r\nT", b"GET "];
    for name in names {
        let error = try_cmd!(conn, "LOCK.GUARD", "key", "a", token, *name, "data").unwrap_err();
        assert!(error.starts_with("ERR unknown command"), "{name:?}");
    }
    let long = "x".repeat(1_000_000);
    refused!(
        conn,
        "ERR unknown command",
        "LOCK.GUARD key a {token} {long} data"
    );
}

#[test]
fn a_guard_does_not_change_the_state_of_the_connection() {
    let (server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "LOCK.GUARD key a {token} SELECT 3");
    cmd!(conn, "SET data value");
    let keyspace = server.info("keyspace");
    assert!(keyspace.contains_key("db0") && !keyspace.contains_key("db3"));
}

#[test]
fn a_command_inside_runs_in_the_callers_database() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "SELECT 5");
    let token = held(&mut conn, "key");
    cmd!(conn, "LOCK.GUARD key a {token} SET data value");
    assert_eq!(text(&cmd!(conn, "GET data")), "value");
    let got = guard(&mut conn, token, "GET data").unwrap();
    assert_eq!(text(&got), "value");
}

#[test]
fn internal_commands_of_the_module_are_refused_inside() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    for line in ["LOCK.APPLY key x", "LOCK.SETTLE 0 key"] {
        assert_refused_by_name(guard(&mut conn, token, line), name_of(line));
    }
}

#[test]
fn a_renamed_command_is_refused_like_the_original() {
    let (_server, mut conn) =
        Server::configured("rename-command EVAL lua; rename-command MULTI begin");
    let token = held(&mut conn, "key");
    for line in ["lua return 0", "begin"] {
        let error = guard(&mut conn, token, line).unwrap_err();
        assert!(error.contains("not allowed"), "{error}");
    }
}

#[test]
fn migrate_inside_moves_keys_away_even_the_locks_own() {
    let (server, other) = (Server::start(), Server::start());
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    cmd!(conn, "SET data value");
    let mut migrate = command!("LOCK.GUARD key a {token} MIGRATE 127.0.0.1");
    migrate.arg(other.port()).arg("").arg(&[0, 5_000]);
    migrate.arg(&["KEYS", "data", "key"]);
    assert_eq!(conn.run(&migrate), Value::Okay);
    assert_eq!(int(&cmd!(conn, "DBSIZE")), 0);
    assert_not_held(guard(&mut conn, token, ""));
    let mut there = other.connect();
    let got = guard(&mut there, token, "GET data").unwrap();
    assert_eq!(text(&got), "value");
}

#[test]
fn restore_over_the_locks_own_key_works_inside_as_outside() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let dump = bytes(&guard(&mut conn, token, "DUMP key").unwrap());
    let mut restore = command!("LOCK.GUARD key a {token} RESTORE key 0");
    assert_eq!(conn.run(restore.arg(&dump).arg("REPLACE")), Value::Okay);
    assert_eq!(int(&guard(&mut conn, token, "").unwrap()), token);
    let mut restore = command!("LOCK.GUARD key a {token} RESTORE copy 0");
    conn.run(restore.arg(&dump));
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE copy a")), 0);
}
