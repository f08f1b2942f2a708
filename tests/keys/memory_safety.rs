//! Another module's callbacks and threads, while valgrind checks the server's memory: see `callbacks`, and `threads` in
//! `tests/waiting`.

use mortise_harness::{Server, cmd, eventually_within, int, valgrind_can_watch, waiter};
use std::time::Duration;

use crate::callbacks::DEEDS;

/// valgrind makes the server slow.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn nothing_reads_or_writes_memory_that_a_callback_has_freed() {
    if !valgrind_can_watch() {
        return;
    }
    let server = Server::builder().alone().under_valgrind().start();
    server.load_actor();
    let mut conn = server.connect();
    let mut reactions = 0;
    for event in ["lock.release", "lock.acquire", "lock.expire"] {
        for deed in DEEDS {
            cmd!(conn, "FLUSHALL");
            cmd!(conn, "LOCK.RLOCK key one 60000");
            cmd!(conn, "LOCK.RLOCK key other 60000");
            let guarded = int(&cmd!(conn, "LOCK.RLOCK key guarded 60000"));
            if event == "lock.expire" {
                cmd!(conn, "LOCK.RLOCK key brief 1");
            }
            cmd!(conn, "ACTOR.ON {event} key 1 {deed}");
            match event {
                "lock.release" => {
                    let release = "LOCK.RELEASE key one";
                    cmd!(conn, "LOCK.GUARD key guarded {guarded} {release}")
                }
                "lock.acquire" => cmd!(conn, "LOCK.RLOCK key new 60000"),
                _ => cmd!(conn, "PING"),
            };
            reactions += 1;
            eventually_within(PATIENCE, &format!("{deed} at {event}"), || {
                int(&cmd!(conn, "ACTOR.FIRED")) == reactions
            });
        }
    }
}

#[test]
fn commands_on_threads_misuse_no_memory() {
    if !valgrind_can_watch() {
        return;
    }
    let server = Server::builder().alone().under_valgrind().start();
    server.load_actor();
    let mut conn = server.connect();
    for round in 0..5 {
        let holder = format!("holder:{round}");
        cmd!(conn, "ACTOR.THREAD LOCK.ACQUIRE key {holder} 60000");
        let next = format!("next:{round}");
        let mut waiter = waiter!(server, "LOCK.ACQUIRE key {next} 60000 WAIT 0");
        let take_away = match round {
            0 => &format!("LOCK.RELEASE key {holder}"),
            1 => &format!("LOCK.LEAVE key {holder}"),
            2 => "DEL key",
            3 => "RENAME key elsewhere",
            _ => "FLUSHALL",
        };
        cmd!(conn, "ACTOR.THREAD {take_away}");
        assert!(int(&waiter.recv()) > 0, "{take_away}");
        cmd!(conn, "ACTOR.THREAD LOCK.RELEASE key {next}");
    }
}
