//! LOCK.APPLY and LOCK.SETTLE: no ordinary client can run them in any way.

use mortise_harness::{
    Conn, Facts, Server, array, cmd, error_line, int, lock_info, send, text, try_cmd,
};
use redis::Value;

/// Well-formed effects: on a server that applied them the lock would be free, or `b`'s.
fn effects() -> Vec<Vec<u8>> {
    // Format 1, last token 1, and the kind: the lock is free, or a's hold is over, or the clock.
    let free = b"\x01\x01F".to_vec();
    let drop = b"\x01\x01D\x01a".to_vec();
    let clock = b"\x01\xff\xff\xff\xff\xff\xff\xff\x0fC".to_vec();
    // A stamp (boot id, machine, boot time, wall time) and a hold: owner, write, read, token, left, held, revoked.
    let sole = |revoked: u8| {
        let mut sole = b"\x01\x01S".to_vec();
        sole.extend([0; 16 + 8]);
        sole.extend(b"\x01\x01\x01b\x01\x00\x01\xe0\xd4\x03\x00");
        sole.push(revoked);
        sole
    };
    let (plain, revoked) = (sole(0), sole(1));
    let cut = b"\x01".to_vec();
    vec![free, drop, clock, plain, revoked, Vec::new(), cut]
}

struct Scene {
    server: Server,
    conn: Conn,
    facts: Vec<Facts>,
    last_token: i64,
}

impl Scene {
    fn set_up() -> Scene {
        let (server, mut conn) = Server::start_connected();
        cmd!(conn, "LOCK.ACQUIRE key a 60000 HOLDS 3");
        cmd!(conn, "SET string value");
        let facts = lock_info(&mut conn, "key").unwrap().facts();
        let last_token = server.gauge("last_token");
        Scene {
            server,
            conn,
            facts,
            last_token,
        }
    }

    /// Fails if anything has changed since the set-up.
    #[track_caller]
    fn assert_untouched(&mut self) {
        let lock = lock_info(&mut self.conn, "key").unwrap();
        assert_eq!(lock.facts(), self.facts);
        assert_eq!(int(&cmd!(self.conn, "DBSIZE")), 2);
        assert_eq!(text(&cmd!(self.conn, "GET string")), "value");
        assert_eq!(self.server.gauge("last_token"), self.last_token);
    }

    /// Both commands on a lock, on another type, and on a missing key.
    fn attempts(&self) -> Vec<Vec<Vec<u8>>> {
        let mut attempts = Vec::new();
        for key in ["key", "string", "free"] {
            for effect in effects() {
                attempts.push(vec![b"LOCK.APPLY".to_vec(), key.into(), effect]);
            }
            attempts.push(vec![b"LOCK.SETTLE".to_vec(), b"0".to_vec(), key.into()]);
        }
        attempts
    }
}

#[track_caller]
fn assert_refused(error: &str) {
    assert!(error.starts_with("ERR "), "{error}");
    assert!(error.contains("internal"), "{error}");
}

#[track_caller]
fn error_in(reply: &Value) -> String {
    error_line(reply).unwrap_or_else(|| panic!("{reply:?} is no error"))
}

#[test]
fn a_client_is_refused() {
    let mut scene = Scene::set_up();
    for attempt in scene.attempts() {
        assert_refused(&scene.conn.try_cmd(&attempt).unwrap_err());
    }
    scene.assert_untouched();
}

#[test]
fn a_client_is_refused_in_a_transaction() {
    let mut scene = Scene::set_up();
    let attempts = scene.attempts();
    cmd!(scene.conn, "MULTI");
    for attempt in &attempts {
        scene.conn.cmd(attempt);
    }
    let replies = cmd!(scene.conn, "EXEC");
    assert_eq!(array(&replies).len(), attempts.len());
    for reply in array(&replies) {
        assert_refused(&error_in(reply));
    }
    scene.assert_untouched();
}

#[test]
fn a_script_is_refused() {
    let mut scene = Scene::set_up();
    for function in ["call", "pcall"] {
        let script = format!("return redis.{function}(ARGV[1], KEYS[1], unpack(ARGV, 2))");
        for attempt in scene.attempts() {
            let mut words: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), b"1"];
            words.extend([&attempt[1][..], &attempt[0]]);
            words.extend(attempt[2..].iter().map(Vec::as_slice));
            assert_refused(&scene.conn.try_cmd(&words).unwrap_err());
        }
    }
    scene.assert_untouched();
}

#[test]
fn a_client_is_refused_while_a_waiter_and_an_ended_lease_need_settling() {
    let mut scene = Scene::set_up();
    let mut waiter = scene.server.connect();
    send!(waiter, "LOCK.ACQUIRE key b 60000 WAIT 0");
    scene.server.await_blocked(&waiter);
    for attempt in scene.attempts() {
        assert_refused(&scene.conn.try_cmd(&attempt).unwrap_err());
    }
    scene.assert_untouched();
    assert_eq!(lock_info(&mut scene.conn, "key").unwrap().waiters, 1);

    // In a transaction nothing is swept, so the ended hold is still there.
    cmd!(scene.conn, "MULTI");
    cmd!(scene.conn, "LOCK.ACQUIRE short a 5");
    cmd!(scene.conn, "DEBUG SLEEP 0.006");
    cmd!(scene.conn, "LOCK.SETTLE 0 short");
    cmd!(scene.conn, "EXISTS short");
    let replies = cmd!(scene.conn, "EXEC");
    assert_refused(&error_in(&array(&replies)[2]));
    assert_eq!(int(&array(&replies)[3]), 1, "nobody has swept it");
}

#[test]
fn a_refused_internal_command_is_not_replicated() {
    let (mut server, mut conn) = Server::configured("appendonly yes");
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let facts = lock_info(&mut conn, "key").unwrap().facts();
    for effect in effects() {
        try_cmd!(conn, "LOCK.APPLY", "key", &effect[..]).unwrap_err();
        try_cmd!(conn, "LOCK.APPLY", "free", &effect[..]).unwrap_err();
    }
    server.restart(mortise_harness::Shutdown::NoSave);
    let mut conn = server.connect();
    assert_eq!(lock_info(&mut conn, "key").unwrap().facts(), facts);
    assert_eq!(int(&cmd!(conn, "DBSIZE")), 1);
}

#[test]
fn apply_is_registered_with_the_arguments_that_it_takes() {
    let (_server, mut conn) = Server::start_connected();
    let info = cmd!(conn, "COMMAND INFO LOCK.APPLY");
    let info = array(&array(&info)[0]).to_vec();
    assert_eq!(int(&info[1]), 3);
    let error = try_cmd!(conn, "LOCK.APPLY key x more").unwrap_err();
    assert!(error.contains("wrong number of arguments"), "{error}");
}
