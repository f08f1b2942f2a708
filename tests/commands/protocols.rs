//! The same command has the same reply however it is sent: RESP2 or RESP3, alone, in a transaction, from a
//! script or from a function.

use mortise_harness::{
    Conn, LockInfo, Server, array, cmd, error_line, eventually, hold_of, int, is_nil, lock_info,
    refused, text,
};
use redis::Value;

/// A sequence of commands in one column and their replies in the other. `A`, `B`… stand for tokens, in order of appearance.
const STORY: &[(&str, &str)] = &[
    ("LOCK.ACQUIRE key a 60000", "A"),
    ("LOCK.ACQUIRE key a 60000", "A"),
    ("LOCK.ACQUIRE key b 60000", "nil"),
    ("LOCK.RLOCK key b 60000", "nil"),
    ("LOCK.RLOCK key a 60000 HOLDS 3", "A"),
    ("LOCK.RENEW key a 70000", "A"),
    ("LOCK.RENEW key b 70000", "nil"),
    ("LOCK.FENCE key a 5", "A"),
    ("LOCK.FENCE key b 5", "nil"),
    ("LOCK.PASS key b c 60000", "nil"),
    ("LOCK.PASS key a a 60000", "ERR"),
    ("LOCK.RELEASE key a", "ERR"),
    ("LOCK.RELEASE key b", "nil"),
    ("LOCK.RELEASE key a TOKEN 5", "nil"),
    ("LOCK.RELEASE key a WRITE", "4"),
    ("LOCK.RELEASE key a WRITE", "3"),
    ("LOCK.RELEASE key a WRITE", "nil"),
    ("LOCK.RLOCK key b 60000", "B"),
    ("LOCK.WLOCK key b 60000", "nil"),
    ("LOCK.RELEASE key a ALL", "0"),
    ("LOCK.WLOCK key b 60000", "C"),
    ("LOCK.RELEASE key b ALL READ", "ERR"),
    ("LOCK.RELEASE key b HOLDS 0 WRITE", "1"),
    ("LOCK.PASS key b d 60000", "D"),
    ("LOCK.PASS key b d 60000", "nil"),
    ("LOCK.RELEASE key b", "nil"),
    ("LOCK.RELEASE key d", "0"),
    ("LOCK.RELEASE key d", "nil"),
    ("LOCK.INFO key", "nil"),
    ("LOCK.INFO key OWNER a", "nil"),
    ("LOCK.ACQUIRE key a 0", "ERR"),
    ("LOCK.ACQUIRE key a 60000 WAIT x", "ERR"),
    ("LOCK.ACQUIRE key a 60000 NOW", "ERR"),
    ("LOCK.APPLY key x", "ERR"),
    ("LOCK.SETTLE 0 key", "ERR"),
    ("SET key value", "OK"),
    ("LOCK.ACQUIRE key a 60000", "WRONGTYPE"),
    ("LOCK.RELEASE key a", "WRONGTYPE"),
    ("LOCK.RENEW key a 60000", "WRONGTYPE"),
    ("LOCK.PASS key a b 60000", "WRONGTYPE"),
    ("LOCK.FENCE key a 5", "WRONGTYPE"),
    ("LOCK.REVOKE key a", "WRONGTYPE"),
    ("LOCK.INFO key", "WRONGTYPE"),
    ("LOCK.MACQUIRE a 60000 2 other key", "WRONGTYPE"),
    ("LOCK.INFO other", "nil"),
    ("DEL key", "1"),
    ("LOCK.WLOCK key a 60000 WAIT 0", "E"),
    ("LOCK.RELEASE key a", "0"),
];

/// Replaces tokens by their names and errors by their code.
#[derive(Default)]
struct Reader {
    tokens: Vec<i64>,
}

impl Reader {
    fn read(&mut self, reply: &Result<Value, String>) -> String {
        let line = match reply {
            Err(line) => Some(line.clone()),
            Ok(reply) => error_line(reply),
        };
        if let Some(line) = line {
            return line.split(' ').next().unwrap_or_default().to_owned();
        }
        match reply {
            Ok(Value::Nil) => "nil".to_owned(),
            Ok(Value::Okay) => "OK".to_owned(),
            Ok(Value::Int(n)) if *n > 1_000_000 => {
                let known = self.tokens.iter().position(|token| token == n);
                let place = known.unwrap_or_else(|| {
                    assert!(self.tokens.iter().all(|token| token < n), "tokens grow");
                    self.tokens.push(*n);
                    self.tokens.len() - 1
                });
                char::from(b'A' + u8::try_from(place).unwrap()).to_string()
            }
            Ok(Value::Int(n)) => n.to_string(),
            other => format!("{other:?}"),
        }
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Fails unless each command, sent by `way`, gets its reply in both protocols.
#[track_caller]
fn assert_same_story(mut way: impl FnMut(&mut Conn, &[&str]) -> Result<Value, String>) {
    for resp3 in [false, true] {
        let server = Server::start();
        let mut conn = match resp3 {
            false => server.connect(),
            true => server.connect_resp3(),
        };
        load_function(&mut conn);
        let mut reader = Reader::default();
        for (line, expected) in STORY {
            let reply = way(&mut conn, &words(line));
            assert_eq!(reader.read(&reply), *expected, "{line}: {reply:?}");
        }
    }
}

/// A function `run` that runs the command in its arguments.
fn load_function(conn: &mut Conn) {
    let library = "#!lua name=story\n\
        redis.register_function('run', function(keys, args)\n\
            return redis.call(args[1], keys[1], unpack(args, 2))\n\
        end)";
    cmd!(conn, "FUNCTION", "LOAD", "REPLACE", library);
}

/// The words that send a command by `door`, which is `EVAL` or `FCALL`.
fn through<'a>(door: &'a str, name: &'a str, command: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec![door, name, "1", command[1], command[0]];
    words.extend(&command[2..]);
    words
}

#[test]
fn a_command_sent_alone_gets_the_expected_reply() {
    assert_same_story(|conn, command| conn.try_cmd(command));
}

#[test]
fn a_command_in_a_transaction_gets_the_same_reply() {
    assert_same_story(|conn, command| {
        cmd!(conn, "MULTI");
        conn.cmd(command);
        Ok(array(&cmd!(conn, "EXEC"))[0].clone())
    });
}

#[test]
fn a_command_under_a_guard_gets_the_same_reply() {
    assert_same_story(|conn, command| {
        let token = int(&cmd!(conn, "LOCK.ACQUIRE guarding g 60000 HOLDS 1"));
        let token = token.to_string();
        conn.try_cmd(&[&["LOCK.GUARD", "guarding", "g", &token], command].concat())
    });
}

#[test]
fn a_command_called_by_a_script_gets_the_same_reply() {
    for script in [
        "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))",
        "return redis.pcall(ARGV[1], KEYS[1], unpack(ARGV, 2))",
        "redis.setresp(3); return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))",
    ] {
        assert_same_story(|conn, command| conn.try_cmd(&through("EVAL", script, command)));
    }
}

#[test]
fn a_command_called_by_a_function_gets_the_same_reply() {
    assert_same_story(|conn, command| conn.try_cmd(&through("FCALL", "run", command)));
}

/// Fails unless `replies` are those of the whole sequence.
#[track_caller]
fn assert_whole_story(replies: &Value) {
    assert_eq!(array(replies).len(), STORY.len());
    let mut reader = Reader::default();
    for ((line, expected), reply) in STORY.iter().zip(array(replies)) {
        let reply = reader.read(&Ok(reply.clone()));
        assert_eq!(reply, *expected, "{line}");
    }
}

#[test]
fn all_commands_get_the_same_replies_in_one_transaction() {
    let server = Server::start();
    for mut conn in [server.connect(), server.connect_resp3()] {
        cmd!(conn, "MULTI");
        for (line, _) in STORY {
            conn.cmd(&words(line));
        }
        assert_whole_story(&cmd!(conn, "EXEC"));
    }
}

#[test]
fn all_commands_get_the_same_replies_in_one_script() {
    let server = Server::start();
    let script = r"
        local replies = {}
        for i, line in ipairs(ARGV) do
            local words = {}
            for word in string.gmatch(line, '%S+') do table.insert(words, word) end
            replies[i] = redis.pcall(unpack(words))
        end
        return replies";
    for mut conn in [server.connect(), server.connect_resp3()] {
        let mut words = vec!["EVAL", script, "1", "key"];
        words.extend(STORY.iter().map(|(line, _)| line));
        assert_whole_story(&conn.cmd(&words));
    }
}

#[test]
fn a_request_that_cannot_block_gets_null_at_once() {
    let server = Server::start();
    for mut conn in [server.connect(), server.connect_resp3()] {
        load_function(&mut conn);
        cmd!(conn, "LOCK.ACQUIRE key holder 60000");
        for line in [
            "LOCK.ACQUIRE key b 60000 WAIT 0",
            "LOCK.RLOCK key b 60000 WAIT 3600000",
        ] {
            let command = words(line);
            for script in ["call", "pcall"] {
                let script =
                    format!("return redis.{script}(ARGV[1], KEYS[1], unpack(ARGV, 2)) or 'nil'");
                let reply = conn.cmd(&through("EVAL", &script, &command));
                assert_eq!(reply, Value::BulkString(b"nil".to_vec()), "{line}");
            }
            let reply = conn.cmd(&through("FCALL", "run", &command));
            assert!(is_nil(&reply), "{line}: {reply:?}");

            cmd!(conn, "MULTI");
            conn.cmd(&command);
            cmd!(conn, "PING");
            let replies = cmd!(conn, "EXEC");
            assert!(is_nil(&array(&replies)[0]), "{line}: {replies:?}");
        }
        assert_eq!(lock_info(&mut conn, "key").unwrap().waiters, 0);
        cmd!(conn, "LOCK.RELEASE key holder");
    }
}

#[test]
fn a_discarded_transaction_takes_no_lock() {
    let server = Server::start();
    let (mut conn, mut other) = (server.connect(), server.connect());
    cmd!(conn, "WATCH key");
    cmd!(other, "LOCK.ACQUIRE key b 60000");
    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.ACQUIRE second a 60000");
    assert!(is_nil(&cmd!(conn, "EXEC")), "it is a key like any other");
    assert_eq!(int(&cmd!(conn, "EXISTS second")), 0);

    cmd!(conn, "MULTI");
    cmd!(conn, "LOCK.ACQUIRE second a 60000");
    refused!(conn, "ERR wrong number", "LOCK.ACQUIRE second");
    refused!(conn, "EXECABORT ", "EXEC");
    assert_eq!(int(&cmd!(conn, "EXISTS second")), 0);
}

#[test]
fn a_change_of_a_watched_lock_aborts_the_transaction_and_a_read_does_not() {
    let server = Server::start();
    let (mut watcher, mut conn) = (server.connect(), server.connect());
    let lines = [
        ("LOCK.RLOCK key a 60000", true),
        ("LOCK.RLOCK key b 60000", true),
        ("LOCK.RLOCK key a 60000", true),
        ("LOCK.WLOCK key a 60000", false),
        ("LOCK.WLOCK key c 60000", false),
        ("LOCK.RENEW key a 70000", true),
        ("LOCK.RENEW key c 70000", false),
        ("LOCK.RENEW free c 70000", false),
        ("LOCK.PASS key a d 70000", true),
        ("LOCK.PASS key a d 70000", false),
        ("LOCK.PASS key d b 70000", false),
        ("LOCK.PASS free a d 70000", false),
        ("LOCK.PASS key d a 70000", true),
        ("LOCK.FENCE key a 1", true),
        ("LOCK.FENCE key c 1", false),
        ("LOCK.REVOKE key c", false),
        ("LOCK.REVOKE key a TOKEN 1", false),
        ("LOCK.REVOKE key a", true),
        ("LOCK.REVOKE key a", false),
        ("LOCK.RENEW key a 80000", false),
        ("LOCK.RLOCK key a 80000", false),
        ("LOCK.RELEASE key c", false),
        ("LOCK.RELEASE key a TOKEN 1", false),
        ("LOCK.RELEASE key a WRITE", false),
        ("LOCK.RELEASE key a HOLDS 7", false),
        ("LOCK.RELEASE free c", false),
        ("LOCK.INFO key", false),
        ("LOCK.ACQUIRE key a 0", false),
        ("LOCK.RELEASE key b", true),
        ("LOCK.RELEASE key a ALL", true),
        ("LOCK.RELEASE key a ALL", false),
    ];
    for (line, changes) in lines {
        cmd!(watcher, "WATCH key free");
        let _ = conn.try_cmd(&words(line));
        cmd!(watcher, "MULTI");
        cmd!(watcher, "PING");
        assert_eq!(is_nil(&cmd!(watcher, "EXEC")), changes, "{line}");
    }
    // The end of a lease is a change without a command.
    cmd!(conn, "LOCK.ACQUIRE key a 50");
    cmd!(watcher, "WATCH key");
    eventually("the key is gone", || int(&cmd!(conn, "EXISTS key")) == 0);
    cmd!(watcher, "MULTI");
    assert!(is_nil(&cmd!(watcher, "EXEC")));
}

#[test]
fn a_script_reads_a_lock_as_a_flat_table_or_in_resp3_as_a_map() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.RLOCK key a 60000");
    let script = "return redis.call('LOCK.INFO', KEYS[1])";
    let flat = cmd!(conn, "EVAL", script, 1, "key");
    assert_eq!(LockInfo::read(&flat).holds[0].owner, b"a");
    let script = r"
        redis.setresp(3)
        local lock = redis.call('LOCK.INFO', KEYS[1]).map
        return { lock.mode, lock.holders, lock.holds[1].map.owner }";
    let reply = cmd!(conn, "EVAL", script, 1, "key");
    let [mode, holders, owner] = array(&reply) else {
        panic!("{reply:?}")
    };
    assert_eq!(
        (&*text(mode), int(holders), &*text(owner)),
        ("read", 1, "a")
    );
}

#[test]
fn a_read_only_script_may_read_locks_but_not_acquire_them() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let look = "return redis.call('LOCK.INFO', KEYS[1], 'OWNER', 'a')";
    assert!(!is_nil(&cmd!(conn, "EVAL_RO", look, 1, "key")));
    for command in ["LOCK.ACQUIRE", "LOCK.RENEW"] {
        let change = format!("return redis.call('{command}', KEYS[1], 'a', 1000)");
        let start = "ERR Write commands are not allowed";
        refused!(conn, start, "EVAL_RO", change, 1, "key");
    }
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().counts(), (1, 0));
}
