//! Cycles among thousands of readers and waiters.

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Builder, Conn, Server, bytes, cmd, command, eventually, int, is_nil, try_cmd, waiter,
};

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

fn takes(mode: &str, key: &str, owner: &str) -> Cmd {
    command!(mode, key, owner, LEASE)
}

/// `owner` waits for `key` by mail.
fn waits(key: &str, owner: &str) -> Cmd {
    let mut request = takes("LOCK.WLOCK", key, owner);
    request
        .arg("WAIT")
        .arg(0)
        .arg("MAIL")
        .arg(format!("box of {key}"));
    request.arg("HOLDS").arg(1);
    request
}

fn reader(number: usize) -> String {
    format!("reader:{number}")
}

/// `a` holds `mine`. A crowd waits for it, and then `z`, which is also one of the crowd that reads `shared`.
fn crowded(builder: Builder) -> (Server, Conn) {
    let builder = builder.module_arg("mail-timeout", "60000");
    let server = builder.start();
    let mut conn = server.connect();
    send(
        &mut conn,
        [
            takes("LOCK.WLOCK", "mine", "a"),
            takes("LOCK.WLOCK", "elsewhere", "b"),
        ],
    );
    let half = READERS / 2;
    let reads = |number: usize| takes("LOCK.RLOCK", "shared", &reader(number));
    send(&mut conn, (0..half).map(reads));
    let others = (0..ELSEWHERE).map(|number| format!("other:{number}"));
    let others = others.chain((half - READERS_ELSEWHERE..half).map(reader));
    send(&mut conn, others.map(|owner| waits("elsewhere", &owner)));
    send(
        &mut conn,
        (0..BLOCKED).map(|number| waits("mine", &format!("blocked:{number}"))),
    );
    send(&mut conn, (half..READERS).map(reads));
    send(
        &mut conn,
        [takes("LOCK.RLOCK", "shared", "z"), waits("mine", "z")],
    );
    (server, conn)
}

/// Checks that `a` may not wait for `key`, because `z` reads it.
#[track_caller]
fn deadlocks(conn: &mut Conn, key: &str) {
    let error = try_cmd!(conn, "LOCK.WLOCK", key, "a", LEASE, "WAIT", 0).unwrap_err();
    let named: Vec<&str> = error.split('\'').skip(1).step_by(2).collect();
    assert!(
        error.starts_with("DEADLOCK ") && named == [key, "mine"],
        "{error}"
    );
}

/// Checks that `a` may wait once `z` no longer reads `key`.
#[track_caller]
fn waits_without_z(server: &Server, conn: &mut Conn, key: &str) {
    int(&cmd!(conn, "LOCK.RELEASE", key, "z"));
    let before = server.gauge("waiters");
    drop(waiter!(server, "LOCK.WLOCK", key, "a", LEASE, "WAIT", 0));
    eventually("the waiter has left", || server.gauge("waiters") == before);
}

#[test]
fn a_cycle_with_crowds_at_both_ends_is_found() {
    let (server, mut conn) = crowded(Server::builder());
    deadlocks(&mut conn, "shared");
    // z waits without reading, and then reads while it waits.
    waits_without_z(&server, &mut conn, "shared");
    send(&mut conn, [takes("LOCK.RLOCK", "shared", "z")]);
    deadlocks(&mut conn, "shared");
    // Its task no longer waits.
    send(&mut conn, [command!("LOCK.LEAVE", "mine", "z")]);
    waits_without_z(&server, &mut conn, "shared");
}

#[test]
fn a_cycle_through_a_crowd_is_found_after_its_lock_was_renamed_moved_or_passed_on() {
    let (server, mut conn) = crowded(Server::builder().alone());
    assert!(is_nil(&cmd!(conn, "LOCK.WLOCK", "shared", "a", LEASE)));
    cmd!(conn, "RENAME", "shared", "renamed");
    deadlocks(&mut conn, "renamed");
    cmd!(conn, "COPY", "renamed", "copied");
    deadlocks(&mut conn, "copied");
    let payload = bytes(&cmd!(conn, "DUMP", "copied"));
    cmd!(conn, "RESTORE", "restored", 0, payload);
    deadlocks(&mut conn, "restored");
    waits_without_z(&server, &mut conn, "copied");
    deadlocks(&mut conn, "restored");
    cmd!(conn, "DEBUG", "RELOAD");
    deadlocks(&mut conn, "restored");
    cmd!(conn, "MOVE", "restored", 1);
    cmd!(conn, "SELECT", 1);
    deadlocks(&mut conn, "restored");
    // A pass gives it to an owner that waits for nobody.
    int(&cmd!(conn, "LOCK.PASS", "restored", "z", "y", LEASE));
    int(&cmd!(conn, "LOCK.PASS", "restored", "y", "z", LEASE));
    deadlocks(&mut conn, "restored");
    cmd!(conn, "MOVE", "restored", 0);
    cmd!(conn, "SELECT", 0);
    waits_without_z(&server, &mut conn, "restored");
}
