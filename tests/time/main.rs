//! Leases and clocks: when leases and waits end, whatever wall clocks show, and what a server does that does not know how long it was down.

mod clock_skew;
mod clock_turns;
mod clocks;
mod expiry;
mod grace;
mod namespaces;
mod promotion_grace;
mod stall_guard;

use std::time::Instant;

use mortise_harness::redis::Value;
use mortise_harness::{Builder, Server, assert_error, cmd};

fn with_grace(grace: u64, max_lease: u64) -> Builder {
    Server::builder()
        .module_arg("grace", &grace.to_string())
        .module_arg("max-lease", &max_lease.to_string())
}

fn grace_left(server: &Server) -> i64 {
    server.gauge("grace_left_ms")
}

fn promote(server: &Server) -> Instant {
    let since = Instant::now();
    cmd!(server.connect(), "REPLICAOF NO ONE");
    since
}

/// The server counts whole milliseconds, so 2,000 of them may be 1,999 and a bit.
fn millis(since: Instant) -> i64 {
    i64::try_from(since.elapsed().as_millis()).unwrap()
}

#[track_caller]
fn assert_try_again(reply: Result<Value, String>) {
    assert_error(reply, "TRYAGAIN ");
}
