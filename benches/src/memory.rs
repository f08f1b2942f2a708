//! What a lock takes in memory, against a string of the same key, with the owner as its value and a TTL.

use mortise_harness::{Server, cmd, int};

use crate::report::{Report, count};
use crate::samples::Samples;
use crate::scale::Scale;
use crate::schemes::{Scheme, key};
use crate::wire::Clients;

/// Bytes a key.
struct Bytes {
    /// Of the whole server, over all keys.
    used: Samples,
    /// By MEMORY USAGE, which leaves out what a TTL takes.
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
}

/// On a server of its own, because nothing else may come or go meanwhile.
fn measure(server: &Server, scheme: &Scheme, count: usize) -> Bytes {
    let used = || -> f64 {
        server.info("memory")["used_memory"]
            .parse()
            .expect("a number of bytes")
    };
    let before = used();
    let mut clients = Clients::connect(server);
    scheme.hold(&mut clients, count);
    drop(clients);
    let used = (used() - before) / count as f64;
    let told = int(&cmd!(server.connect(), "MEMORY", "USAGE", key(count / 2)));
    Bytes {
        used: used.into(),
        told: (told as f64).into(),
    }
}
