//! Another module's callback for a key-space event changes the key of the event: it deletes, overwrites, expires or moves it, or calls
//! our commands for it. The server and the key's clients go on.

use mortise_harness::{Conn, Server, cmd, eventually, int, is_nil, send, waiter};

/// What a callback does to the lock `key`, which `one` and `other` hold for reading.
pub(crate) const DEEDS: [&str; 14] = [
    "DEL key",
    "UNLINK key",
    "SET key value",
    "EXPIRE key 0",
    "PEXPIRE key 1",
    "FLUSHALL",
    "FLUSHALL ASYNC",
    "RENAME key elsewhere",
    "MOVE key 1",
    "LOCK.RELEASE key other ALL",
    "LOCK.LEAVE key other",
    "LOCK.RLOCK key third 60000",
    "LOCK.ACQUIRE key third 60000",
    "COPY key copy REPLACE",
];

/// Runs `act` on a server of its own for each deed; it makes the callback do the deed. Fails unless the server then works, its counts are
/// right, and it grants `key` once it is free.
#[track_caller]
fn with_each(deeds: &[&str], act: impl Fn(&Server, &mut Conn, &str)) {
    for deed in deeds {
        let (server, mut conn) = Server::builder().alone().start_connected();
        server.load_actor();
        act(&server, &mut conn, deed);
        await_fired(&mut conn, deed);
        cmd!(conn, "FLUSHALL");
        eventually(&format!("{deed} leaves no lock behind"), || {
            (server.gauge("locks"), server.gauge("holders")) == (0, 0)
        });
        assert!(int(&cmd!(conn, "LOCK.ACQUIRE key last 60000")) > 0);
        assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE key nobody 60000")));
    }
}

/// Makes the callback do `deed` once, at `event`.
fn react(conn: &mut Conn, event: &str, deed: &str) {
    cmd!(conn, "ACTOR.ON {event} key 1 {deed}");
}

#[track_caller]
fn await_fired(conn: &mut Conn, deed: &str) {
    eventually(&format!("the callback does {deed}"), || {
        int(&cmd!(conn, "ACTOR.FIRED")) > 0
    });
}

fn share(conn: &mut Conn, lease: u32) {
    cmd!(conn, "LOCK.RLOCK key one {lease}");
    cmd!(conn, "LOCK.RLOCK key other 60000");
}

#[test]
fn a_callback_may_change_the_key_while_a_hold_is_released() {
    with_each(&DEEDS, |_, conn, deed| {
        share(conn, 60_000);
        react(conn, "lock.release", deed);
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key one")), 0, "{deed}");
    });
}

#[test]
fn a_callback_may_change_the_key_while_a_hold_expires() {
    with_each(&DEEDS, |_, conn, deed| {
        react(conn, "lock.expire", deed);
        share(conn, 30);
    });
}

#[test]
fn a_callback_may_change_the_key_while_a_command_is_granted() {
    with_each(&DEEDS, |_, conn, deed| {
        react(conn, "lock.acquire", deed);
        assert!(int(&cmd!(conn, "LOCK.RLOCK key one 60000")) > 0, "{deed}");
    });
}

#[test]
fn a_callback_may_change_the_key_while_it_is_created() {
    // The others take the key away. Redis itself frees a value twice if it is removed while a module sets it.
    with_each(&DEEDS[9..], |_, conn, deed| {
        react(conn, "new", deed);
        assert!(int(&cmd!(conn, "LOCK.RLOCK key one 60000")) > 0, "{deed}");
    });
}

#[test]
fn a_callback_may_change_the_key_while_a_lock_is_handed_over() {
    with_each(&DEEDS, |server, conn, deed| {
        cmd!(conn, "LOCK.ACQUIRE key first 60000");
        let mut readers =
            ["one", "other"].map(|owner| waiter!(server, "LOCK.RLOCK key {owner} 60000 WAIT 0"));
        react(conn, "lock.acquire", deed);
        cmd!(conn, "LOCK.RELEASE key first");
        let [one, other] = readers.each_mut().map(Conn::recv);
        assert!(int(&one) > 0, "{deed}");
        // An owner that leaves before its reply is written gets none.
        assert!(deed.starts_with("LOCK.LEAVE") || int(&other) > 0, "{deed}");
    });
}

#[test]
fn a_callback_may_change_the_key_while_a_waiter_gets_an_expired_lock() {
    with_each(&DEEDS, |server, conn, deed| {
        share(conn, 300);
        let mut next = server.connect();
        send!(next, "LOCK.ACQUIRE key next 60000 WAIT 5000");
        react(conn, "lock.expire", deed);
        await_fired(conn, deed);
        // Some callbacks grant or refuse the waiter. After the FLUSHALL it has a reply in any case.
        cmd!(conn, "FLUSHALL");
        next.try_recv().ok();
    });
}

#[test]
fn a_callback_may_change_the_key_during_a_guarded_command() {
    for inner in ["LOCK.RELEASE key one", "DEL key", "SET key value"] {
        with_each(&DEEDS, |_, conn, deed| {
            share(conn, 60_000);
            let token = int(&cmd!(conn, "LOCK.RLOCK key one 60000 HOLDS 1"));
            for event in ["lock.release", "del", "set"] {
                react(conn, event, deed);
            }
            cmd!(conn, "LOCK.GUARD key one {token} {inner}");
            let fired = int(&cmd!(conn, "ACTOR.FIRED"));
            assert!(fired > 0, "{deed} within {inner}");
        });
    }
}
