//! A guard passes replies on unchanged, in RESP2 and RESP3.

use mortise_harness::redis::{Cmd, Value};
use mortise_harness::{Conn, Server, cmd, command, try_cmd};

use super::held;

fn fill(conn: &mut Conn) {
    cmd!(conn, "SET string text");
    cmd!(conn, "SET", "bytes", (0..=255).collect::<Vec<u8>>());
    cmd!(conn, "SET", "large", "x".repeat(1_000_000));
    cmd!(conn, "HSET hash field value other 1");
    cmd!(conn, "SADD set one two three");
    cmd!(conn, "ZADD zset 1.5 low 2 high");
    cmd!(conn, "RPUSH list a b");
    cmd!(conn, "XADD stream 1-1 field value");
    cmd!(conn, "GEOADD geo 13.361389 38.115556 Palermo");
    cmd!(conn, "LOCK.ACQUIRE another b 600000");
}

/// Commands with replies of every type, which do not change when they are repeated.
fn questions() -> Vec<Cmd> {
    vec![
        command!("PING"),
        command!("PING hello"),
        command!("GET string"),
        command!("GET bytes"),
        command!("GET large"),
        command!("GET missing"),
        command!("STRLEN string"),
        command!("MGET string missing bytes"),
        command!("HGETALL hash"),
        command!("HGETALL missing"),
        command!("SMEMBERS set"),
        command!("SMISMEMBER set one four"),
        command!("ZSCORE zset low"),
        command!("ZRANGE zset 0 -1 WITHSCORES"),
        command!("ZMSCORE zset low missing"),
        command!("LRANGE list 0 -1"),
        command!("LRANGE missing 0 -1"),
        command!("LPOS list missing"),
        command!("XRANGE stream - +"),
        command!("XREAD STREAMS stream 0"),
        command!("XINFO STREAM stream"),
        command!("GEOPOS geo Palermo nowhere"),
        command!("LOLWUT VERSION 5 1 1 1"),
        command!("COMMAND INFO get nosuch"),
        command!("COMMAND DOCS get"),
        command!("CLUSTER KEYSLOT x"),
        command!("LOCK.INFO another OWNER nobody"),
        command!("LOCK.TOP"),
        command!("INCR string"),
        command!("LPUSH string x"),
        command!("NOSUCH", "x\r\ny"),
        command!("GET"),
    ]
}

/// `command` under the lock.
fn guarded(token: i64, command: &Cmd) -> Cmd {
    let mut guard = command!("LOCK.GUARD key a {token}");
    for arg in command.args_iter() {
        match arg {
            mortise_harness::redis::Arg::Simple(bytes) => guard.arg(bytes),
            other => panic!("{other:?}"),
        };
    }
    guard
}

/// Maps and sets have no order of their own.
fn sorted(reply: Result<Value, String>) -> Result<String, String> {
    reply.map(|value| match value {
        Value::Set(mut items) => {
            items.sort_by_key(|item| format!("{item:?}"));
            format!("{:?}", Value::Set(items))
        }
        value => format!("{value:?}"),
    })
}

fn compare(conn: &mut Conn, token: i64) {
    for question in questions() {
        let bare = sorted(conn.try_run(&question));
        let under = sorted(conn.try_run(&guarded(token, &question)));
        assert_eq!(under, bare);
    }
}

#[test]
fn replies_are_those_of_the_command_in_resp2_and_resp3() {
    let (server, mut conn) = Server::start_connected();
    fill(&mut conn);
    let token = held(&mut conn, "key");
    compare(&mut conn, token);
    let mut conn = server.connect_resp3();
    compare(&mut conn, token);
    let map = cmd!(conn, "LOCK.GUARD key a {token} HGETALL hash");
    assert!(matches!(map, Value::Map(_)), "{map:?}");
    let score = cmd!(conn, "LOCK.GUARD key a {token} ZSCORE zset low");
    assert_eq!(score, Value::Double(1.5));
}

#[test]
fn replies_in_a_transaction_are_those_of_the_command_too() {
    let server = Server::start();
    for mut conn in [server.connect(), server.connect_resp3()] {
        fill(&mut conn);
        let token = held(&mut conn, "key");
        for question in questions() {
            let mut replies = Vec::new();
            for command in [&question, &guarded(token, &question)] {
                cmd!(conn, "MULTI");
                let queued = conn.try_run(command);
                if queued.is_err() {
                    // With too few arguments a plain command is refused at once, and one inside a guard when it runs.
                    cmd!(conn, "DISCARD");
                    break;
                }
                replies.push(format!("{:?}", try_cmd!(conn, "EXEC")));
            }
            if let [bare, under] = &replies[..] {
                assert_eq!(under, bare);
            }
        }
        cmd!(conn, "LOCK.RELEASE key a ALL");
        cmd!(conn, "FLUSHALL");
    }
}

#[test]
fn a_reply_of_a_hundred_thousand_elements_is_passed_on() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let mut push = command!("RPUSH list");
    for n in 0..100_000 {
        push.arg(n);
    }
    conn.run(&guarded(token, &push));
    let all = command!("LRANGE list 0 -1");
    assert_eq!(conn.run(&guarded(token, &all)), conn.run(&all));
}
