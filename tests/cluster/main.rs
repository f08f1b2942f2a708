//! Redis Cluster: routing, and slots that move. Failovers are in `failover`.

mod clients;
mod importing;
mod load;
mod routing;
mod settings;
mod several;
mod slots;
mod waiting;

use std::time::{Duration, Instant};

use mortise_harness::redis::Cmd;
use mortise_harness::{Conn, Server, cmd, eventually};

/// The contract says 200 ms; a busy machine may take twice as long.
const SOON: Duration = Duration::from_millis(500);

/// The waiter is sent away, within this time.
#[track_caller]
fn assert_unblocked(waiter: &mut Conn, within: Duration) {
    let since = Instant::now();
    let error = waiter.try_recv().expect_err("sent away");
    assert!(error.starts_with("UNBLOCKED "), "{error}");
    assert!(since.elapsed() < within, "after {:?}", since.elapsed());
}

/// A connection that waits at a node to which the key's slot is moving, as a client does that follows an `ASK`.
#[track_caller]
fn asking_waiter(server: &Server, request: &Cmd) -> Conn {
    let mut conn = server.connect();
    cmd!(conn, "ASKING");
    conn.submit(request);
    server.await_blocked(&conn);
    conn
}

/// Waits until the module has asked five times which slots are here.
#[track_caller]
fn await_looks(server: &Server) {
    let before = server.calls("cluster|nodes");
    eventually("the module has checked the slots", || {
        server.calls("cluster|nodes") >= before + 5
    });
}
