//! Replicas and the AOF receive the writes of the command inside, in order, and nothing else.

use std::fs;

use mortise_harness::redis::Parser;
use mortise_harness::{
    Conn, Server, Snapshot, array, assert_same_data, cmd, command, error_line, eventually, granted,
    holders_of, int, text, try_cmd, waiter,
};

use super::{assert_not_held, guard, held};

fn appending() -> Server {
    Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start()
}

/// The commands in the AOF without SELECT, and LOCK.APPLY with only its key.
fn appended(server: &Server) -> Vec<String> {
    let mut commands = Vec::new();
    for entry in fs::read_dir(server.dir().join("appendonlydir")).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().ends_with(".incr.aof") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let (mut rest, mut parser) = (bytes.as_slice(), Parser::new());
        while let Ok(command) = parser.parse_value(&mut rest) {
            let mut words: Vec<String> = array(&command).iter().map(text).collect();
            if words[0].eq_ignore_ascii_case("LOCK.APPLY") {
                words.truncate(2);
            }
            if !words[0].eq_ignore_ascii_case("SELECT") {
                commands.push(words.join(" "));
            }
        }
    }
    commands
}

/// The commands that `act` adds to the AOF.
fn appended_by(server: &Server, act: impl FnOnce(&mut Conn)) -> Vec<String> {
    let before = appended(server).len();
    act(&mut server.connect());
    appended(server).split_off(before)
}

#[test]
fn only_the_writes_of_the_command_inside_are_appended() {
    let server = appending();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    let cases: [(&str, &[&str]); 14] = [
        ("SET data 1", &["SET data 1"]),
        ("GET data", &[]),
        ("PING", &[]),
        ("SADD set only", &["SADD set only"]),
        ("SPOP set", &["SREM set only"]),
        ("INCRBYFLOAT data 0.5", &["SET data 1.5 KEEPTTL"]),
        ("LPUSH data x", &[]),
        ("MSET a 1 b 2", &["MSET a 1 b 2"]),
        ("SETNX a 2", &[]),
        ("DEL missing", &[]),
        ("LOCK.RLOCK key a 1000", &["LOCK.APPLY key"]),
        ("LOCK.INFO key", &[]),
        ("LOCK.RELEASE none a", &[]),
        ("DEL key", &["DEL key"]),
    ];
    for (inside, expected) in cases {
        let written = appended_by(&server, |conn| drop(guard(conn, token, inside)));
        assert_eq!(written, expected, "{inside}");
    }
}

#[test]
fn a_refused_guard_and_a_guard_without_a_command_append_nothing() {
    let server = appending();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    let written = appended_by(&server, |conn| {
        cmd!(conn, "LOCK.GUARD key a {token}");
        assert_not_held(try_cmd!(conn, "LOCK.GUARD key b {token} SET data 1"));
        assert_not_held(try_cmd!(conn, "LOCK.GUARD none a {token} SET data 1"));
        assert!(try_cmd!(conn, "LOCK.GUARD key a {token} MULTI").is_err());
    });
    assert!(written.is_empty(), "{written:?}");
}

#[test]
fn the_end_of_a_lease_that_a_guard_finds_is_replicated_before_the_writes_inside() {
    let server = appending();
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.RLOCK key a 60000"));
    cmd!(conn, "LOCK.RLOCK key short 20");
    let written = appended_by(&server, |conn| {
        // In one transaction, so that no timer runs in between.
        let replies = conn.pipeline(&[
            command!("DEBUG SLEEP 0.05"),
            command!("LOCK.GUARD key a {token} SET data 1"),
        ]);
        replies.into_iter().for_each(|reply| drop(reply.unwrap()));
    });
    assert_eq!(written, ["MULTI", "LOCK.APPLY key", "SET data 1", "EXEC"]);
}

#[test]
fn a_hand_off_inside_is_replicated_in_its_order() {
    let server = appending();
    let mut conn = server.connect();
    let token = held(&mut conn, "key");
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let written = appended_by(&server, |conn| {
        cmd!(conn, "MULTI");
        cmd!(conn, "LOCK.GUARD key a {token} SET data 1");
        cmd!(conn, "LOCK.GUARD key a {token} LOCK.RELEASE key a");
        cmd!(conn, "LOCK.GUARD key a {token} SET data 2");
        cmd!(conn, "SET other 3");
        cmd!(conn, "EXEC");
    });
    granted(&mut b);
    let locks = written.iter().filter(|line| *line == "LOCK.APPLY key");
    assert!(locks.count() >= 1, "{written:?}");
    let others: Vec<&String> = written
        .iter()
        .filter(|line| *line != "LOCK.APPLY key")
        .collect();
    assert_eq!(others, ["MULTI", "SET data 1", "SET other 3", "EXEC"]);
    assert_eq!(written[1], "SET data 1");
    assert_eq!(written[written.len() - 2], "SET other 3");
}

#[test]
fn a_replica_and_the_file_hold_what_the_primary_holds() {
    let mut primary = appending();
    let replica = primary.start_replica();
    let mut conn = primary.connect();
    let token = held(&mut conn, "key");
    cmd!(conn, "LOCK.ACQUIRE other b 600000");
    let _waiter = waiter!(primary, "LOCK.ACQUIRE other c 600000 WAIT 0");
    for n in 0..50 {
        cmd!(conn, "LOCK.GUARD key a {token} RPUSH list {n}");
        cmd!(conn, "LOCK.GUARD key a {token} SADD set {n} 1{n}");
        cmd!(conn, "LOCK.GUARD key a {token} SPOP set");
        let lock = format!("lock-{n}");
        cmd!(conn, "LOCK.GUARD key a {token} LOCK.RLOCK {lock} a 600000");
        if n % 3 == 0 {
            cmd!(conn, "LOCK.GUARD key a {token} RENAME {lock} moved-{n}");
        }
    }
    cmd!(conn, "LOCK.GUARD key a {token} LOCK.RELEASE other b");
    eventually("c is in", || holders_of(&mut conn, "other") == ["c"]);
    assert_same_data(&primary, &replica);
    let commands = replica.info("commandstats");
    assert!(!commands.contains_key("cmdstat_LOCK.GUARD"), "{commands:?}");
    let digest = text(&cmd!(conn, "DEBUG DIGEST"));
    let before = Snapshot::take(&primary);
    primary.sigkill();
    primary.start_again();
    assert_eq!(text(&cmd!(primary.connect(), "DEBUG DIGEST")), digest);
    Snapshot::take(&primary).assert_continues(&before);
}

/// Writes of every kind, including those that are replicated in another form.
const WRITES: &[&str] = &[
    "SET s 1 EX 1000",
    "SETEX t 1000 x",
    "GETEX s PERSIST",
    "GETSET s 2",
    "INCRBYFLOAT s 0.25",
    "APPEND t yz",
    "SETRANGE t 5 !",
    "SETBIT bits 70 1",
    "BITOP NOT tib bits",
    "BITFIELD bits SET u8 0 200",
    "MSETNX m1 1 m2 2",
    "GETDEL m1",
    "HSET h a 1 b 2",
    "HINCRBYFLOAT h a 0.5",
    "HDEL h b",
    "SADD set a b c d e f",
    "SPOP set",
    "SPOP set 2",
    "SMOVE set other-set a",
    "SUNIONSTORE union set other-set",
    "ZADD z 1 a 2 b 3 c",
    "ZPOPMIN z",
    "ZRANGESTORE zz z 0 -1",
    "GEOADD geo 13.36 38.11 x",
    "GEOSEARCHSTORE near geo FROMMEMBER x BYRADIUS 1 km",
    "RPUSH l a b c d",
    "LMOVE l l LEFT RIGHT",
    "LMPOP 1 l LEFT COUNT 2",
    "LREM l 1 a",
    "SORT l ALPHA STORE sorted",
    "XADD x 1-1 f v",
    "XADD x 2-1 f v",
    "XGROUP CREATE x g 0",
    "XREADGROUP GROUP g c COUNT 1 STREAMS x >",
    "XACK x g 1-1",
    "XTRIM x MAXLEN 1",
    "PFADD pf a b c",
    "PFMERGE pf2 pf",
    "EXPIRE l 1000",
    "PERSIST l",
    "RENAME l list",
    "COPY list list2",
    "RENAMENX list2 list3",
    "UNLINK union",
    "MOVE sorted 1",
    "SWAPDB 2 3",
    "PUBLISH channel message",
    "TOUCH list",
    "OBJECT ENCODING list",
    "LOCK.RLOCK lock r 600000",
    "LOCK.RELEASE lock r",
];

#[test]
fn guarded_writes_of_every_kind_are_replicated_like_unguarded_ones() {
    let primary = Server::start();
    let replica = primary.start_replica();
    let mut conn = primary.connect();
    let token = held(&mut conn, "key").to_string();
    for (n, line) in WRITES.iter().enumerate() {
        let inside: Vec<&str> = line.split(' ').collect();
        let words = [&["LOCK.GUARD", "key", "a", &token], &inside[..]].concat();
        // Every other one in a transaction, every third from a script.
        let reply = match n % 3 {
            0 => conn.try_cmd(&words),
            1 => {
                cmd!(conn, "MULTI");
                conn.cmd(&words);
                cmd!(conn, "INCR transactions");
                Ok(array(&cmd!(conn, "EXEC"))[0].clone())
            }
            _ => {
                let script = "redis.call('INCR', 'scripts'); return redis.call(unpack(ARGV))";
                conn.try_cmd(&[&["EVAL", script, "0"], &words[..]].concat())
            }
        };
        let error = reply
            .as_ref()
            .map_or_else(|error| Some(error.clone()), error_line);
        assert_eq!(error, None, "{line}");
    }
    assert_same_data(&primary, &replica);
    let expiring = |server: &Server| {
        let mut conn = server.connect();
        ["s", "t", "list"].map(|key| int(&cmd!(conn, "PEXPIRETIME {key}")))
    };
    assert_eq!(expiring(&primary), expiring(&replica));
}
