//! Another module's callback for a key-space event changes the key of the event: it deletes, overwrites, expires or moves it, or calls
//! our commands for it. The server and the key's clients go on.

use mortise_harness::{Conn, Server, cmd, eventually, int, is_nil, send, waiter};

fn server() -> Server {
    let server = Server::start_alone();
    server.load_actor();
    server
}

/// What a callback does to the lock `key`, which `one` and `other` hold for reading.
pub(crate) const DEEDS: [&[&str]; 14] = [
    &["DEL", "key"],
    &["UNLINK", "key"],
    &["SET", "key", "value"],
    &["EXPIRE", "key", "0"],
    &["PEXPIRE", "key", "1"],
    &["FLUSHALL"],
    &["FLUSHALL", "ASYNC"],
    &["RENAME", "key", "elsewhere"],
    &["MOVE", "key", "1"],
    &["LOCK.RELEASE", "key", "other", "ALL"],
    &["LOCK.LEAVE", "key", "other"],
    &["LOCK.RLOCK", "key", "third", "60000"],
    &["LOCK.ACQUIRE", "key", "third", "60000"],
    &["COPY", "key", "copy", "REPLACE"],
];

const TAKES_AWAY: [&str; 8] = [
    "DEL", "UNLINK", "SET", "EXPIRE", "PEXPIRE", "FLUSHALL", "RENAME", "MOVE",
];

/// Makes the callback do `deed` once, at `event`.
fn react(conn: &mut Conn, event: &str, deed: &[&str]) {
    cmd!(conn, "ACTOR.ON", event, "key", 1, deed);
}

fn await_fired(conn: &mut Conn, deed: &[&str]) {
    eventually(&format!("the callback does {deed:?}"), || {
        int(&cmd!(conn, "ACTOR.FIRED")) == 1
    });
}

/// Fails unless the server works, its counts are right, and it grants `key` once it is free.
#[track_caller]
fn assert_sound(server: &Server, conn: &mut Conn, deed: &[&str]) {
    cmd!(conn, "FLUSHALL");
    eventually(&format!("{deed:?} leaves no lock behind"), || {
        (server.gauge("locks"), server.gauge("holders")) == (0, 0)
    });
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "last", 60_000));
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "nobody", 60_000)));
    assert!(token > 0, "{deed:?}");
}

fn share(conn: &mut Conn, lease: u32) {
    cmd!(conn, "LOCK.RLOCK", "key", "one", lease);
    cmd!(conn, "LOCK.RLOCK", "key", "other", 60_000);
}

#[test]
fn a_callback_may_change_the_key_while_a_hold_is_released() {
    for deed in DEEDS {
        let server = server();
        let mut conn = server.connect();
        share(&mut conn, 60_000);
        react(&mut conn, "lock.release", deed);
        assert_eq!(
            int(&cmd!(conn, "LOCK.RELEASE", "key", "one")),
            0,
            "{deed:?}"
        );
        await_fired(&mut conn, deed);
        assert_sound(&server, &mut conn, deed);
    }
}

#[test]
fn a_callback_may_change_the_key_while_a_hold_expires() {
    for deed in DEEDS {
        let server = server();
        let mut conn = server.connect();
        react(&mut conn, "lock.expire", deed);
        share(&mut conn, 30);
        await_fired(&mut conn, deed);
        assert_sound(&server, &mut conn, deed);
    }
}

#[test]
fn a_callback_may_change_the_key_while_a_command_is_granted() {
    for deed in DEEDS {
        let server = server();
        let mut conn = server.connect();
        react(&mut conn, "lock.acquire", deed);
        assert!(
            int(&cmd!(conn, "LOCK.RLOCK", "key", "one", 60_000)) > 0,
            "{deed:?}"
        );
        await_fired(&mut conn, deed);
        assert_sound(&server, &mut conn, deed);
    }
}

#[test]
fn a_callback_may_change_the_key_while_it_is_created() {
    for deed in DEEDS {
        let server = server();
        // Redis itself frees a value twice if it is removed while a module sets it.
        if TAKES_AWAY.contains(&deed[0]) {
            continue;
        }
        let mut conn = server.connect();
        react(&mut conn, "new", deed);
        assert!(
            int(&cmd!(conn, "LOCK.RLOCK", "key", "one", 60_000)) > 0,
            "{deed:?}"
        );
        await_fired(&mut conn, deed);
        assert_sound(&server, &mut conn, deed);
    }
}

#[test]
fn a_callback_may_change_the_key_while_a_lock_is_handed_over() {
    for deed in DEEDS {
        let server = server();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "key", "first", 60_000);
        let mut one = waiter!(server, "LOCK.RLOCK", "key", "one", 60_000, "WAIT", 0);
        let mut other = waiter!(server, "LOCK.RLOCK", "key", "other", 60_000, "WAIT", 0);
        react(&mut conn, "lock.acquire", deed);
        cmd!(conn, "LOCK.RELEASE", "key", "first");
        await_fired(&mut conn, deed);
        assert!(int(&one.recv()) > 0, "{deed:?}");
        let reply = other.recv();
        // A client that disconnects before the reply is written gets none.
        assert!(deed[0] == "LOCK.LEAVE" || int(&reply) > 0, "{deed:?}");
        assert_sound(&server, &mut conn, deed);
    }
}

#[test]
fn a_callback_may_change_the_key_while_a_waiter_gets_an_expired_lock() {
    for deed in DEEDS {
        let server = server();
        let mut conn = server.connect();
        share(&mut conn, 300);
        let mut next = server.connect();
        send!(next, "LOCK.ACQUIRE", "key", "next", 60_000, "WAIT", 5_000);
        react(&mut conn, "lock.expire", deed);
        await_fired(&mut conn, deed);
        // Some callbacks grant or refuse the waiter. After the FLUSHALL it has a reply in any case.
        assert_sound_with_waiter(&server, &mut conn, &mut next, deed);
    }
}

#[track_caller]
fn assert_sound_with_waiter(server: &Server, conn: &mut Conn, next: &mut Conn, deed: &[&str]) {
    cmd!(conn, "FLUSHALL");
    // Granted, or refused because of what the callback left at the key.
    next.try_recv().ok();
    assert_sound(server, conn, deed);
}

#[test]
fn a_callback_may_change_the_key_during_a_guarded_command() {
    for deed in DEEDS {
        for inner in [
            ["LOCK.RELEASE", "key", "one"].as_slice(),
            &["DEL", "key"],
            &["SET", "key", "value"],
        ] {
            let server = server();
            let mut conn = server.connect();
            share(&mut conn, 60_000);
            let token = int(&cmd!(conn, "LOCK.RLOCK", "key", "one", 60_000, "HOLDS", 1));
            for event in ["lock.release", "del", "set"] {
                react(&mut conn, event, deed);
            }
            cmd!(conn, "LOCK.GUARD", "key", "one", token, inner);
            assert!(
                int(&cmd!(conn, "ACTOR.FIRED")) > 0,
                "{deed:?} within {inner:?}"
            );
            assert_sound(&server, &mut conn, deed);
        }
    }
}
