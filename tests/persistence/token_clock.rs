//! The token clock in an AOF rewritten without a preamble. The rewritten file contains only keys, so the clock is appended.

use mortise_harness::{Builder, Conn, Server, cmd, eventually, int, wait_for_sync, wall_micros};

fn appending() -> Builder {
    Server::builder()
        .appending()
        .config("aof-use-rdb-preamble", "no")
}

/// Acquires a lock with a token far ahead of the wall clock, and releases it, so that no key has the token.
fn token_ahead(conn: &mut Conn) -> i64 {
    let ahead = wall_micros() + 3_500_000_000;
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000 FENCE {ahead}"));
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a")), 0);
    token
}

#[track_caller]
fn assert_exceeds(server: &Server, token: i64) {
    let next = int(&cmd!(server.connect(), "LOCK.ACQUIRE key a 60000"));
    assert!(next > token, "back by {} µs", token - next);
}

#[test]
fn the_token_clock_is_written_after_a_pause_in_which_the_file_was_rewritten() {
    let mut server = appending().start();
    let mut conn = server.connect();
    let token = token_ahead(&mut conn);
    cmd!(conn, "CLIENT", "PAUSE", 60_000, "WRITE");
    server.rewrite();
    cmd!(conn, "CLIENT", "UNPAUSE");
    eventually("something is appended", || {
        let state = server.info("persistence");
        state["aof_current_size"] != state["aof_base_size"]
    });
    server.sigkill();
    server.start_again();
    assert_exceeds(&server, token);
}

#[test]
fn a_replicas_own_file_has_the_token_clock_too() {
    let primary = Server::start();
    let mut replica = appending().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    let token = token_ahead(&mut primary.connect());
    wait_for_sync(&primary, &replica);
    replica.rewrite();
    cmd!(replica.connect(), "REPLICAOF", "NO", "ONE");
    replica.sigkill();
    drop(primary);
    replica.start_again();
    cmd!(replica.connect(), "REPLICAOF NO ONE");
    assert_exceeds(&replica, token);
}

#[test]
fn the_token_clock_survives_a_rewrite_by_a_server_that_loaded_it_from_files() {
    let mut server = appending().start();
    let token = token_ahead(&mut server.connect());
    server.sigkill();
    server.start_again();
    server.rewrite();
    server.sigkill();
    server.start_again();
    assert_exceeds(&server, token);
}

#[test]
fn the_token_clock_survives_a_rewrite_by_a_replica_that_has_it_from_a_full_sync() {
    let primary = Server::start();
    let token = token_ahead(&mut primary.connect());
    let mut replica = appending().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    replica.rewrite();
    drop(primary);
    replica.sigkill();
    replica.start_again();
    cmd!(replica.connect(), "REPLICAOF NO ONE");
    assert_exceeds(&replica, token);
}
