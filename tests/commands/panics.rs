//! A bug of the module causes a line in the log, and never ends the server.

use mortise_harness::{Server, cmd, send, text};

#[test]
fn a_panic_logs_its_place_and_the_server_goes_on() {
    let server = Server::builder()
        .alone()
        .may_run_out_of_entropy()
        .env("RUST_BACKTRACE", "1")
        .start();
    // It loads modules so that neither our shim nor its own allocator can replace functions of the C library.
    if server.version().is_valkey_from(8, 1) {
        return;
    }
    server.load_actor();
    let mut conn = server.connect();
    // Each holds one lock and waits for the other one, so the second one searches for a deadlock.
    cmd!(conn, "LOCK.ACQUIRE a one 60000");
    cmd!(conn, "LOCK.ACQUIRE b two 60000");
    cmd!(conn, "LOCK.ACQUIRE b one 60000 WAIT 0 HOLDS 1 MAIL box");
    server.run_out_of_entropy();
    // The search makes the first hash table on this thread.
    send!(
        conn,
        "ACTOR.THREAD LOCK.ACQUIRE a two 60000 WAIT 0 HOLDS 1 MAIL another"
    );
    conn.try_recv().ok();
    let mut conn = server.connect();
    assert_eq!(text(&cmd!(conn, "PING")), "PONG");
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("bug: "));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 1, "{log}");
    for line in lines {
        assert!(
            line.contains(" panicked at ") && line.contains(".rs:"),
            "{line}"
        );
    }
    assert!(!log.contains("stack backtrace"), "{log}");
}
