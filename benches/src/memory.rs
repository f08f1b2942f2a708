//! The memory of a lock, against a string of the same key with the owner as its value and a TTL; of one more reader of it; and of one
//! more blocked waiter. Waiters by mail are in `mail.rs`.

use std::thread;
use std::time::Duration;

use mortise_harness::{Server, cmd, command, int};

use crate::report::{Report, count};
use crate::samples::Samples;
use crate::scale::Scale;
use crate::schemes::{LONG_LEASE, Scheme, key};
use crate::wire::Clients;

/// Bytes a key.
struct Bytes {
    /// Of the whole server, divided by all keys.
    used: Samples,
    /// By MEMORY USAGE, which leaves out the TTL.
    told: Samples,
}

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let locks = Server::start();
    let strings = Server::builder().without_module().start();
    let ours = measure(&locks, &Scheme::mortise(), scale.many);
    let theirs = measure(&strings, &Scheme::set_and_script(&strings), scale.many);
    report.held(
        format!(
            "memory of a lock against SET with TTL, {} of them",
            count(scale.many)
        ),
        "bytes",
        &ours.used,
        &theirs.used,
        1.5,
    );
    report.shown(
        "the same by MEMORY USAGE, which leaves out the TTL",
        "bytes",
        &ours.told,
        &theirs.told,
    );
    report.bound(
        format!("memory of a reader, {} of one lock", count(scale.readers)),
        "bytes",
        &reader(scale.readers),
        300.0,
    );
    report.bound(
        format!("memory of a blocked request, {BLOCKED} of one lock"),
        "bytes",
        &blocked(),
        64.0 * 1024.0,
    );
}

/// How many wait for one lock, each over a connection of its own.
const BLOCKED: usize = 500;

fn used(server: &Server) -> f64 {
    let used = &server.info("memory")["used_memory"];
    used.parse().expect("a number of bytes")
}

/// One more reader of a lock.
fn reader(readers: usize) -> Samples {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.RLOCK", "key", name(0), LONG_LEASE);
    let before = used(&server);
    let acquires: Vec<_> = (1..=readers)
        .map(|n| command!("LOCK.RLOCK", "key", name(n), LONG_LEASE))
        .collect();
    conn.pipeline(&acquires);
    ((used(&server) - before) / readers as f64).into()
}

/// One more waiter for a lock, with its connection, some seconds later.
fn blocked() -> Samples {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "holder", LONG_LEASE);
    let before = used(&server);
    let requests =
        (0..BLOCKED).map(|n| command!("LOCK.ACQUIRE", "key", name(n), LONG_LEASE, "WAIT", 0));
    let waiting = server.waiters(requests);
    // The server shrinks the buffers of idle clients, a few clients at each check.
    thread::sleep(SHRUNK);
    let taken = (used(&server) - before) / BLOCKED as f64;
    drop(waiting);
    taken.into()
}

/// After this time a connection's buffers are as small as they get.
const SHRUNK: Duration = Duration::from_secs(10);

/// As long as a client's owner names: a UUID and a counter.
fn name(n: usize) -> String {
    format!("0f8fad5b-d9cb-469f-a165-70867728950e:{n}")
}

/// Measures on a new server, where nothing else takes or frees memory.
fn measure(server: &Server, scheme: &Scheme, count: usize) -> Bytes {
    let before = used(server);
    let mut clients = Clients::connect(server);
    scheme.hold(&mut clients, count);
    drop(clients);
    let used = (used(server) - before) / count as f64;
    let told = int(&cmd!(server.connect(), "MEMORY", "USAGE", key(count / 2)));
    Bytes {
        used: used.into(),
        told: (told as f64).into(),
    }
}
