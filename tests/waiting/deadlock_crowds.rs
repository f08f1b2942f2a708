//! A cycle among thousands of readers and waiters. The search itself is the core's: `core/tests/rules/deadlock`.

use mortise_harness::redis::Cmd;
use mortise_harness::{Conn, Server, bytes, cmd, command, int, is_nil, refused, request, waiter};

/// As many as the search gets past.
const READERS: usize = 2_000;
/// How many wait for owners that are in no cycle; some of the readers do so, too.
const ELSEWHERE: usize = 3_000;
const READERS_ELSEWHERE: usize = 500;
/// How many wait for what the requester holds.
const BLOCKED: usize = 1_000;

const LEASE: u64 = 3_600_000;

fn send(conn: &mut Conn, commands: impl IntoIterator<Item = Cmd>) {
    let commands: Vec<Cmd> = commands.into_iter().collect();
    for reply in conn.pipeline(&commands) {
        reply.expect("no error");
    }
}

/// `a` holds `mine`. A crowd waits for it, and then `z`, which is also one of the crowd that reads `shared`.
fn crowded() -> (Server, Conn) {
    let builder = Server::builder().alone();
    let (server, mut conn) = builder
        .module_arg("mail-timeout", "60000")
        .start_connected();
    cmd!(conn, "LOCK.WLOCK mine a {LEASE}");
    cmd!(conn, "LOCK.WLOCK elsewhere b {LEASE}");
    let half = READERS / 2;
    let reads = |n: usize| command!("LOCK.RLOCK shared reader:{n} {LEASE}");
    send(&mut conn, (0..half).map(reads));
    let others = (0..ELSEWHERE).map(|n| format!("other:{n}"));
    let readers = (half - READERS_ELSEWHERE..half).map(|n| format!("reader:{n}"));
    let owners = others.chain(readers);
    let waits = owners.map(|owner| request!("far", 0, "LOCK.WLOCK elsewhere {owner} {LEASE}"));
    send(&mut conn, waits);
    let blocked = (0..BLOCKED).map(|n| request!("box", 0, "LOCK.WLOCK mine blocked:{n} {LEASE}"));
    send(&mut conn, blocked);
    send(&mut conn, (half..READERS).map(reads));
    cmd!(conn, "LOCK.RLOCK shared z {LEASE}");
    conn.run(&request!("box", 0, "LOCK.WLOCK mine z {LEASE}"));
    (server, conn)
}

/// Checks that `a` may not wait for `key`, because `z` reads it.
#[track_caller]
fn deadlocks(conn: &mut Conn, key: &str) {
    let error = refused!(conn, "DEADLOCK ", "LOCK.WLOCK {key} a {LEASE} WAIT 0");
    let named: Vec<&str> = error.split('\'').skip(1).step_by(2).collect();
    assert_eq!(named, [key, "mine"], "{error}");
}

/// Checks that `a` may wait for `key`.
#[track_caller]
fn may_wait(server: &Server, key: &str) {
    let before = server.gauge("waiters");
    drop(waiter!(server, "LOCK.WLOCK {key} a {LEASE} WAIT 0"));
    server.await_gauge("waiters", before);
}

#[test]
fn a_cycle_through_a_crowd_is_found_after_its_lock_was_renamed_moved_or_passed_on() {
    let (server, mut conn) = crowded();
    assert!(is_nil(&cmd!(conn, "LOCK.WLOCK shared a {LEASE}")));
    deadlocks(&mut conn, "shared");
    cmd!(conn, "RENAME shared renamed");
    deadlocks(&mut conn, "renamed");
    cmd!(conn, "COPY renamed copied");
    deadlocks(&mut conn, "copied");
    let payload = bytes(&cmd!(conn, "DUMP copied"));
    cmd!(conn, "RESTORE", "restored", 0, payload);
    deadlocks(&mut conn, "restored");
    cmd!(conn, "LOCK.RELEASE copied z");
    may_wait(&server, "copied");
    deadlocks(&mut conn, "restored");
    cmd!(conn, "DEBUG RELOAD");
    deadlocks(&mut conn, "restored");
    cmd!(conn, "MOVE restored 1");
    cmd!(conn, "SELECT 1");
    deadlocks(&mut conn, "restored");
    // A pass gives it to an owner that waits for nobody.
    int(&cmd!(conn, "LOCK.PASS restored z y {LEASE}"));
    int(&cmd!(conn, "LOCK.PASS restored y z {LEASE}"));
    deadlocks(&mut conn, "restored");
    cmd!(conn, "MOVE restored 0");
    cmd!(conn, "SELECT 0");
    deadlocks(&mut conn, "restored");
    // Its task no longer waits.
    cmd!(conn, "LOCK.LEAVE mine z");
    may_wait(&server, "restored");
}
