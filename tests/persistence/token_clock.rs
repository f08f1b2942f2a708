//! The token clock in an AOF rewritten without a preamble. The rewritten file contains only keys, so the clock is appended.

use mortise_harness::{Builder, Conn, Server, cmd, eventually, int, wait_for_sync, wall_micros};

fn appending() -> Builder {
    Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .config("aof-use-rdb-preamble", "no")
}

fn rewrite(server: &Server) {
    let idle = || {
        let state = server.info("persistence");
        let fields = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"];
        fields.iter().all(|name| state[*name] == "0")
    };
    eventually("no rewrite is going on", idle);
    cmd!(server.connect(), "BGREWRITEAOF");
    eventually("the rewrite is done", idle);
}

/// Acquires a lock with a token far ahead of the wall clock, and releases it, so that no key has the token.
fn token_ahead(conn: &mut Conn) -> i64 {
    let ahead = wall_micros() + 3_500_000_000;
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000 FENCE {ahead}"));
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a")), 0);
    token
}

#[test]
fn the_token_clock_is_written_after_a_pause_in_which_the_file_was_rewritten() {
    let mut server = appending().start();
    let mut conn = server.connect();
    let token = token_ahead(&mut conn);
    cmd!(conn, "CLIENT", "PAUSE", 60_000, "WRITE");
    rewrite(&server);
    cmd!(conn, "CLIENT", "UNPAUSE");
    eventually("something is appended", || {
        let state = server.info("persistence");
        state["aof_current_size"] != state["aof_base_size"]
    });
    server.sigkill();
    server.start_again();
    let next = int(&cmd!(server.connect(), "LOCK.ACQUIRE", "key", "a", 60_000));
    assert!(next > token, "back by {} µs", token - next);
}

#[test]
fn a_replicas_own_file_has_the_token_clock_too() {
    let primary = Server::start();
    let mut replica = appending().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    let token = token_ahead(&mut primary.connect());
    wait_for_sync(&primary, &replica);
    rewrite(&replica);
    cmd!(replica.connect(), "REPLICAOF", "NO", "ONE");
    replica.sigkill();
    drop(primary);
    replica.start_again();
    let mut conn = replica.connect();
    cmd!(conn, "REPLICAOF", "NO", "ONE");
    let next = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    assert!(next > token, "back by {} µs", token - next);
}

#[test]
fn the_token_clock_survives_a_rewrite_by_a_server_that_loaded_it_from_files() {
    let mut server = appending().start();
    let token = token_ahead(&mut server.connect());
    server.sigkill();
    server.start_again();
    rewrite(&server);
    server.sigkill();
    server.start_again();
    let next = int(&cmd!(server.connect(), "LOCK.ACQUIRE", "key", "a", 60_000));
    assert!(next > token, "back by {} µs", token - next);
}

#[test]
fn the_token_clock_survives_a_rewrite_by_a_replica_that_has_it_from_a_full_sync() {
    let primary = Server::start();
    let token = token_ahead(&mut primary.connect());
    let mut replica = appending().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    rewrite(&replica);
    drop(primary);
    replica.sigkill();
    replica.start_again();
    let mut conn = replica.connect();
    cmd!(conn, "REPLICAOF", "NO", "ONE");
    let next = int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000));
    assert!(next > token, "back by {} µs", token - next);
}
