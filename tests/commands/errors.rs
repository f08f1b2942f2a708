//! Refused requests: the text of the error, and that nothing has changed.

use mortise_harness::{Conn, Server, assert_error, cmd, int, is_nil, lock_info, refused, text};

/// Milliseconds; the default of `lock.max-lease`.
const MAX_LEASE: i128 = 86_400_000;
const MAX_COUNT: i128 = (1 << 31) - 1;
const MAX_TOKEN: i128 = (1 << 53) - 1;

/// A command with an integer in it, `?`, and that integer's name and bounds.
struct Place {
    command: &'static str,
    argument: &'static str,
    least: i128,
    most: i128,
}

const fn place(command: &'static str, argument: &'static str, least: i128, most: i128) -> Place {
    Place {
        command,
        argument,
        least,
        most,
    }
}

const INTEGERS: [Place; 31] = [
    place("LOCK.ACQUIRE key a ?", "lease", 1, MAX_LEASE),
    place("LOCK.WLOCK key a ?", "lease", 1, MAX_LEASE),
    place("LOCK.RLOCK key a ?", "lease", 1, MAX_LEASE),
    place("LOCK.ACQUIRE key a 1000 WAIT ?", "WAIT", 0, 1 << 53),
    place("LOCK.WLOCK key a 1000 WAIT ?", "WAIT", 0, 1 << 53),
    place("LOCK.RLOCK key a 1000 WAIT ?", "WAIT", 0, 1 << 53),
    place("LOCK.ACQUIRE key a 1000 HOLDS ?", "HOLDS", 1, MAX_COUNT),
    place("LOCK.WLOCK key a 1000 HOLDS ?", "HOLDS", 1, MAX_COUNT),
    place("LOCK.RLOCK key a 1000 HOLDS ?", "HOLDS", 1, MAX_COUNT),
    place("LOCK.RLOCK key a 1000 LIMIT ?", "LIMIT", 1, MAX_COUNT),
    place("LOCK.ACQUIRE key a 1000 TOKEN ?", "TOKEN", 1, MAX_TOKEN),
    place("LOCK.ACQUIRE key a 1000 FENCE ?", "FENCE", 1, MAX_TOKEN),
    place("LOCK.WLOCK key a 1000 FENCE ?", "FENCE", 1, MAX_TOKEN),
    place("LOCK.RLOCK key a 1000 FENCE ?", "FENCE", 1, MAX_TOKEN),
    place("LOCK.MACQUIRE a ? 1 key", "lease", 1, MAX_LEASE),
    place("LOCK.MACQUIRE a 1000 1 key WAIT ?", "WAIT", 0, 1 << 53),
    place("LOCK.MACQUIRE a 1000 1 key FENCE ?", "FENCE", 1, MAX_TOKEN),
    place("LOCK.RELEASE key a HOLDS ?", "HOLDS", 0, MAX_COUNT),
    place("LOCK.RELEASE key a READ HOLDS ?", "HOLDS", 0, MAX_COUNT),
    place("LOCK.RELEASE key a TOKEN ?", "TOKEN", 1, MAX_TOKEN),
    place("LOCK.RENEW key a ?", "lease", 1, MAX_LEASE),
    place("LOCK.RENEW key a 1000 TOKEN ?", "TOKEN", 1, MAX_TOKEN),
    place("LOCK.PASS key a b ?", "lease", 1, MAX_LEASE),
    place("LOCK.PASS key a b 1000 TOKEN ?", "TOKEN", 1, MAX_TOKEN),
    place("LOCK.REVOKE key a TOKEN ?", "TOKEN", 1, MAX_TOKEN),
    place("LOCK.FENCE key a ?", "token", 1, MAX_TOKEN),
    place("LOCK.GUARD key a ?", "token", 1, MAX_TOKEN),
    place("LOCK.GUARD key a ? SET key x", "token", 1, MAX_TOKEN),
    place("LOCK.INFO key COUNT ?", "COUNT", 1, MAX_COUNT),
    place("LOCK.INFO key OWNER a COUNT ?", "COUNT", 1, MAX_COUNT),
    place("LOCK.TOP COUNT ?", "COUNT", 1, MAX_COUNT),
];

impl Place {
    /// The command's words with `integer` put in.
    fn words(&self, integer: &[u8]) -> Vec<Vec<u8>> {
        let word = |word: &str| match word {
            "?" => integer.to_vec(),
            word => word.as_bytes().to_vec(),
        };
        self.command.split(' ').map(word).collect()
    }

    /// Fails unless `integer` is refused by an error that names the argument and its bounds.
    #[track_caller]
    fn assert_refused(&self, conn: &mut Conn, integer: &[u8]) {
        let what = format!("{} with '{}'", self.command, integer.escape_ascii());
        let error = assert_error(conn.try_cmd(&self.words(integer)), "ERR ");
        let bounds = [self.least.to_string(), self.most.to_string()];
        for named in [self.argument, &bounds[0], &bounds[1]] {
            assert!(error.contains(named), "{what}: {error}");
        }
    }
}

/// Makes `a` hold `key` in both modes.
fn set_up(conn: &mut Conn) {
    cmd!(conn, "DEL key");
    cmd!(conn, "LOCK.WLOCK key a 60000 HOLDS 2");
    cmd!(conn, "LOCK.RLOCK key a 60000 HOLDS 2");
}

#[test]
fn integers_out_of_bounds_are_refused() {
    let (_server, mut conn) = Server::start_connected();
    set_up(&mut conn);
    let before = lock_info(&mut conn, "key").unwrap();
    for place in &INTEGERS {
        let (long, longest) = (i128::from(i64::MAX), i128::from(u64::MAX));
        // In 64 bits the last two would wrap around to 1 and the maximum.
        let wrapping = [longest + 2, longest + 1 + place.most];
        let past = [
            place.least - 1,
            place.most + 1,
            -long - 1,
            long,
            long + 1,
            longest,
        ];
        for past in past.into_iter().chain(wrapping) {
            place.assert_refused(&mut conn, past.to_string().as_bytes());
        }
    }
    let after = lock_info(&mut conn, "key").unwrap();
    assert_eq!(after.facts(), before.facts());
    assert!(after.holds[0].lease <= before.holds[0].lease);
}

#[test]
fn integers_at_their_bounds_are_accepted() {
    let (_server, mut conn) = Server::start_connected();
    for place in &INTEGERS {
        for at in [place.least, place.most] {
            // The largest token is more than an hour ahead, which breaks another bound.
            let too_far_ahead = at == MAX_TOKEN && place.command.contains("FENCE");
            // Nobody holds by such a token.
            let not_held = place.command.contains("GUARD");
            cmd!(conn, "DEL key");
            let reply = conn.try_cmd(&place.words(at.to_string().as_bytes()));
            assert_eq!(
                reply.is_err(),
                too_far_ahead || not_held,
                "{} {at}: {reply:?}",
                place.command
            );
            let code = reply.err().unwrap_or_default();
            assert_eq!(code.starts_with("NOTHELD "), not_held, "{code}");
        }
    }
}

#[test]
fn integers_that_are_not_plain_decimals_are_refused() {
    let (_server, mut conn) = Server::start_connected();
    set_up(&mut conn);
    let before = lock_info(&mut conn, "key").unwrap();
    let text = "|+1|-1|-0|1.0|1.|.1| 1|1 |1\n|\t1|01|00|1e3|0x10|1_000|1,000|1000ms|inf|nan|one|\0|1\0|\x001|\u{ff11}";
    let mut malformed: Vec<Vec<u8>> = text.split('|').map(|word| word.into()).collect();
    malformed.extend([b"\xff".to_vec(), b"1\xff".to_vec()]);
    malformed.extend([20, 41, 300].map(|len| vec![b'9'; len]));
    malformed.push(vec![b'0'; 300]);
    for place in &INTEGERS {
        for integer in &malformed {
            place.assert_refused(&mut conn, integer);
        }
    }
    let after = lock_info(&mut conn, "key").unwrap();
    assert_eq!(after.facts(), before.facts());
    assert!(after.holds[0].lease <= before.holds[0].lease);
}

#[test]
fn the_bounds_of_a_lease_follow_the_configuration() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "CONFIG SET lock.max-lease 5000");
    let place = place("LOCK.ACQUIRE key a ?", "lease", 1, 5_000);
    place.assert_refused(&mut conn, b"5001");
    assert!(conn.try_cmd(&place.words(b"5000")).is_ok());
}

#[test]
fn too_few_arguments_are_refused_by_every_command() {
    let (_server, mut conn) = Server::start_connected();
    for line in [
        "LOCK.ACQUIRE key a 1000",
        "LOCK.WLOCK key a 1000",
        "LOCK.RLOCK key a 1000",
        "LOCK.MACQUIRE a 1000 1 key",
        "LOCK.RELEASE key a",
        "LOCK.RENEW key a 1000",
        "LOCK.PASS key a b 1000",
        "LOCK.REVOKE key a",
        "LOCK.FENCE key a 1",
        "LOCK.GUARD key a 1",
        "LOCK.INFO key",
        "LOCK.APPLY key x",
        "LOCK.SETTLE 0 key",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        for len in 1..words.len() {
            let reply = conn.try_cmd(&words[..len]);
            assert_error(reply, "ERR wrong number of arguments");
        }
    }
    assert_eq!(int(&cmd!(conn, "DBSIZE")), 0);
}

#[test]
fn an_owner_has_one_to_255_bytes() {
    let (_server, mut conn) = Server::start_connected();
    let commands: &[&str] = &[
        "LOCK.ACQUIRE key ? 1000",
        "LOCK.WLOCK key ? 1000",
        "LOCK.RLOCK key ? 1000",
        "LOCK.MACQUIRE ? 1000 1 key",
        "LOCK.RENEW key ? 1000",
        "LOCK.PASS key ? b 1000",
        "LOCK.PASS key a ? 1000",
        "LOCK.REVOKE key ?",
        "LOCK.FENCE key ? 1",
        "LOCK.INFO key OWNER ?",
        "LOCK.RELEASE key ?",
    ];
    for command in commands {
        let owner = place(command, "owner", 1, 255);
        for len in [0, 256, 257, 100_000] {
            owner.assert_refused(&mut conn, &vec![b'x'; len]);
        }
        // 46 and 47 bytes, because owners are stored in different ways by length.
        for len in [1, 46, 47, 254, 255] {
            let reply = conn.try_cmd(&owner.words(&vec![b'x'; len]));
            assert!(reply.is_ok(), "{command} with {len} bytes: {reply:?}");
            cmd!(conn, "DEL key");
        }
    }
}

/// Every command on `key`, with correct arguments.
const COMMANDS: [&str; 20] = [
    "LOCK.ACQUIRE key a 1000",
    "LOCK.ACQUIRE key a 1000 WAIT 1000 HOLDS 2 FENCE 7",
    "LOCK.WLOCK key a 1000",
    "LOCK.RLOCK key a 1000",
    "LOCK.RLOCK key a 1000 WAIT 0",
    "LOCK.RLOCK key a 1000 HOLDS 2 LIMIT 3",
    "LOCK.MACQUIRE a 1000 2 key other",
    "LOCK.MACQUIRE a 1000 2 other key WAIT 0",
    "LOCK.RELEASE key a",
    "LOCK.RELEASE key a ALL TOKEN 5",
    "LOCK.RENEW key a 1000",
    "LOCK.PASS key a b 1000",
    "LOCK.PASS key a a 1000 TOKEN 5",
    "LOCK.REVOKE key a",
    "LOCK.REVOKE key a TOKEN 5",
    "LOCK.FENCE key a 1",
    "LOCK.GUARD key a 1",
    "LOCK.GUARD key a 1 DEL key",
    "LOCK.INFO key",
    "LOCK.INFO key OWNER a",
];

/// Gives `key` each of the other types.
const STRANGERS: [&str; 6] = [
    "SET key value",
    "RPUSH key one two",
    "HSET key field value",
    "SADD key member",
    "ZADD key 1 member",
    "XADD key 1-1 field value",
];

#[test]
fn every_command_refuses_a_key_of_another_type_and_does_not_change_it() {
    let (_server, mut conn) = Server::start_connected();
    for stranger in STRANGERS {
        cmd!(conn, "DEL key");
        cmd!(conn, "{stranger}");
        cmd!(conn, "PEXPIREAT key 4102444800000");
        let before = (cmd!(conn, "DUMP key"), cmd!(conn, "PEXPIRETIME key"));
        for command in COMMANDS {
            refused!(conn, "WRONGTYPE ", "{command}");
        }
        let after = (cmd!(conn, "DUMP key"), cmd!(conn, "PEXPIRETIME key"));
        assert_eq!(before, after, "{stranger}");
    }
}

#[test]
fn other_commands_refuse_a_lock_and_do_not_change_it() {
    let (_server, mut conn) = Server::start_connected();
    set_up(&mut conn);
    let before = lock_info(&mut conn, "key").unwrap().facts();
    for command in [
        "GET key",
        "INCR key",
        "APPEND key x",
        "LPUSH key x",
        "HSET key field value",
        "SADD key member",
        "ZADD key 1 member",
        "XADD key * field value",
        "SETRANGE key 1 x",
    ] {
        refused!(conn, "WRONGTYPE ", "{command}");
    }
    assert_eq!(lock_info(&mut conn, "key").unwrap().facts(), before);
}

#[test]
fn syntax_and_bounds_are_checked_before_the_type() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "SET key value");
    for wrong in [
        "LOCK.ACQUIRE key",
        "LOCK.ACQUIRE key a 0",
        "LOCK.ACQUIRE key a 1000 PATIENCE 5",
        "LOCK.ACQUIRE key a 1000 WAIT",
        "LOCK.ACQUIRE key a 1000 HOLDS 0",
        "LOCK.RLOCK key a 1000 FENCE 0",
        "LOCK.RLOCK key a 1000 LIMIT 2 HOLDS 3",
        "LOCK.ACQUIRE key a 1000 FENCE 9007199254740991",
        "LOCK.RELEASE key a ALL READ",
        "LOCK.RELEASE key a HOLDS x",
        "LOCK.RENEW key a 86400001",
        "LOCK.PASS key a b 0",
        "LOCK.PASS key a b 1000 TOKEN 0",
        "LOCK.FENCE key a 9007199254740991",
        "LOCK.GUARD key a 0 DEL key",
        "LOCK.INFO key COUNT 0",
    ] {
        refused!(conn, "ERR ", "{wrong}");
    }
    assert_eq!(text(&cmd!(conn, "GET key")), "value");
}

#[test]
fn a_request_that_would_wait_is_checked_like_any_other() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key holder 60000");
    for wrong in [
        "LOCK.ACQUIRE key a 0 WAIT 0",
        "LOCK.ACQUIRE key a 1000 WAIT 0 HOLDS 0",
        "LOCK.ACQUIRE key a 1000 WAIT 0 WAIT 0",
        "LOCK.ACQUIRE key a 1000 WAIT 0 FENCE 9007199254740991",
    ] {
        refused!(conn, "ERR ", "{wrong}");
    }
    let lock = lock_info(&mut conn, "key").unwrap();
    assert_eq!((lock.holders, lock.waiters), (1, 0));
}

#[test]
fn unknown_lock_commands_get_the_servers_own_error() {
    let (_server, mut conn) = Server::start_connected();
    refused!(conn, "ERR unknown command", "LOCK.STEAL key a");
    assert!(is_nil(&cmd!(conn, "LOCK.INFO key")));
}
