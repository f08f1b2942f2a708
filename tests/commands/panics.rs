//! A bug of the module causes a line in the log, and never ends the server.

use mortise_harness::{Server, cmd, send, text};

#[test]
fn a_panic_is_a_line_in_the_log_that_says_where_and_the_server_goes_on() {
    let server = Server::builder()
        .alone()
        .may_run_out_of_entropy()
        .env("RUST_BACKTRACE", "1")
        .start();
    // It loads modules in a way that lets nothing come between them and the C library, neither ours nor its own allocator.
    if server.version().is_valkey_from(8, 1) {
        return;
    }
    server.load_actor();
    let mut conn = server.connect();
    server.run_out_of_entropy();
    // When the server becomes a replica, it makes a hash table on this thread, which has made none yet. It also closes blocked connections.
    send!(conn, "ACTOR.THREAD", "REPLICAOF", "127.0.0.1", 1);
    conn.try_recv().ok();
    let mut conn = server.connect();
    assert_eq!(text(&cmd!(conn, "PING")), "PONG");
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("bug: an event"));
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
