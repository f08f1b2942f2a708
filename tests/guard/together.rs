//! Guards in transactions, scripts and functions.

use mortise_harness::{
    Server, array, cmd, command, error_line, granted, holders_of, int, is_nil, text, try_cmd,
    waiter,
};

use super::held;

#[test]
fn each_guard_of_a_transaction_is_checked_when_it_runs() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.GUARD key a {token} SET data 1");
    cmd!(conn, "LOCK.RELEASE key a");
    cmd!(conn, "LOCK.GUARD key a {token} SET data 2");
    cmd!(conn, "LOCK.GUARD key a {token}");
    let replies = cmd!(conn, "EXEC");
    let [set, released, late, asked] = array(&replies) else {
        panic!("{replies:?}")
    };
    assert_eq!((text(set).as_str(), int(released)), ("OK", 0));
    for refused in [late, asked] {
        let error = error_line(refused).expect("refused");
        assert!(error.starts_with("NOTHELD "), "{error}");
    }
    assert_eq!(text(&cmd!(conn, "GET data")), "1");
}

#[test]
fn a_transaction_that_acquires_the_lock_cannot_guard_by_a_token_it_does_not_know() {
    let (_server, mut conn) = Server::start_connected();
    let replies = conn.pipeline(&[
        command!("MULTI"),
        command!("LOCK.ACQUIRE key a 60000"),
        command!("LOCK.GUARD key a 1 SET data 1"),
        command!("EXEC"),
    ]);
    let exec = replies.into_iter().next_back().unwrap().unwrap();
    let error = error_line(&array(&exec)[1]).unwrap();
    assert!(error.starts_with("NOTHELD "), "{error}");
}

/// A script that writes both records if its caller holds; otherwise its first line ends it.
const MOVE: &str = "
    redis.call('LOCK.GUARD', KEYS[1], ARGV[1], ARGV[2])
    redis.call('DECRBY', KEYS[2], ARGV[3])
    return redis.call('INCRBY', KEYS[3], ARGV[3])";

#[test]
fn a_script_with_a_guard_first_writes_nothing_unless_its_caller_holds() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let moved = cmd!(conn, "EVAL", MOVE, 3, "key", "from", "to", "a", token, 10);
    assert_eq!(int(&moved), 10);
    let old = token - 1;
    let late = try_cmd!(conn, "EVAL", MOVE, 3, "key", "from", "to", "a", old, 10);
    let error = late.expect_err("not its token");
    assert!(error.contains("NOTHELD "), "{error}");
    assert_eq!(text(&cmd!(conn, "GET from")), "-10");
}

#[test]
fn a_script_with_a_guard_first_grants_nobody_before_it_ends() {
    let (server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    // The lease ends during the script.
    let script = "
        redis.call('LOCK.GUARD', KEYS[1], 'a', ARGV[1], 'PEXPIRE', KEYS[1], 600000)
        local held = redis.call('LOCK.GUARD', KEYS[1], 'a', ARGV[1])
        for i = 1, 3 do redis.call('RPUSH', KEYS[2], 'a') end
        redis.call('LOCK.RELEASE', KEYS[1], 'a')
        redis.call('RPUSH', KEYS[2], 'a')
        return held";
    let asked = cmd!(conn, "EVAL", script, 2, "key", "list", token);
    assert_eq!(int(&asked), token);
    granted(&mut b);
    assert_eq!(int(&cmd!(conn, "LLEN list")), 4);
    assert_eq!(holders_of(&mut conn, "key"), ["b"]);
}

#[test]
fn a_command_under_the_lock_runs_from_a_script_and_a_function() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let script = "return redis.call('LOCK.GUARD', KEYS[1], 'a', ARGV[1], 'INCR', KEYS[2])";
    let ran = cmd!(conn, "EVAL", script, 2, "key", "data", token);
    assert_eq!(int(&ran), 1);
    let library = "#!lua name=library
        redis.register_function('guarded', function(keys, args)
            return redis.call('LOCK.GUARD', keys[1], 'a', args[1], 'INCR', keys[2])
        end)
        redis.register_function('asked', function(keys, args)
            return redis.call('LOCK.GUARD', keys[1], 'a', args[1])
        end)";
    cmd!(conn, "FUNCTION", "LOAD", library);
    let ran = cmd!(conn, "FCALL", "guarded", 2, "key", "data", token);
    assert_eq!(int(&ran), 2);
    assert_eq!(int(&cmd!(conn, "FCALL", "asked", 1, "key", token)), token);
    let late = try_cmd!(conn, "FCALL", "guarded", 2, "key", "data", token + 1);
    assert!(late.unwrap_err().contains("NOTHELD "));
    let script = "return redis.pcall('LOCK.GUARD', KEYS[1], 'a', ARGV[1], 'FCALL', 'asked', 1, KEYS[1], ARGV[1])";
    let inside = try_cmd!(conn, "EVAL", script, 1, "key", token).unwrap_err();
    assert!(inside.contains("fcall"), "{inside}");
}

#[test]
fn a_script_that_only_reads_may_not_guard() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let script = "return redis.call('LOCK.GUARD', KEYS[1], 'a', ARGV[1])";
    assert!(try_cmd!(conn, "EVAL_RO", script, 1, "key", token).is_err());
    let flagged = format!("#!lua flags=no-writes\n{script}");
    assert!(try_cmd!(conn, "EVAL", flagged, 1, "key", token).is_err());
}

#[test]
fn a_script_in_resp3_gets_the_reply_inside_in_resp3() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    cmd!(conn, "HSET hash field value");
    let script = "
        local reply = redis.call('LOCK.GUARD', KEYS[1], 'a', ARGV[1], 'HGETALL', KEYS[2])
        redis.setresp(3)
        local map = redis.call('LOCK.GUARD', KEYS[1], 'a', ARGV[1], 'HGETALL', KEYS[2])
        return {reply[1], map['map']['field']}";
    let both = cmd!(conn, "EVAL", script, 2, "key", "hash", token);
    let both: Vec<String> = array(&both).iter().map(text).collect();
    assert_eq!(both, ["field", "value"]);
}

#[test]
fn watch_notices_a_write_under_a_guard() {
    let server = Server::start();
    let (mut conn, mut watcher) = (server.connect(), server.connect());
    let token = held(&mut conn, "key");
    cmd!(watcher, "WATCH data");
    cmd!(conn, "LOCK.GUARD key a {token} SET data 1");
    cmd!(watcher, "MULTI");
    cmd!(watcher, "GET data");
    assert!(is_nil(&cmd!(watcher, "EXEC")), "it has changed");
    // A guard that only reads changes nothing.
    cmd!(watcher, "WATCH data key");
    cmd!(conn, "LOCK.GUARD key a {token}");
    cmd!(conn, "LOCK.GUARD key a {token} GET data");
    cmd!(watcher, "MULTI");
    cmd!(watcher, "GET data");
    assert!(!is_nil(&cmd!(watcher, "EXEC")));
}
