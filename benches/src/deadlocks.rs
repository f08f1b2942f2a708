//! The cost of the search for deadlocks for one more waiter: behind owners that wait at two keys each, behind many readers, and behind a task that waits
//! under thousands of names.

use std::time::Instant;

use mortise_harness::redis::Cmd;
use mortise_harness::{Conn, Server, command};

use crate::meter::Meter;
use crate::report::{Report, count};
use crate::samples::Samples;
use crate::scale::Scale;

const LEASE: u64 = 3_600_000;
/// Owners that wait at two keys each.
const CROWD: usize = 3_000;
/// Requests that are measured at a time.
const PROBES: usize = 200;
/// The most that one may take, in microseconds.
const MOST: f64 = 1_000.0;

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    two_keys_each(scale, report);
    many_readers(scale, report);
    many_names(scale, report);
}

fn two_keys_each(scale: &Scale, report: &mut Report) {
    let server = Server::builder()
        .module_arg("mail-timeout", "60000")
        .module_arg("max-queued", "1000000")
        .start();
    let mut conn = server.connect();
    for key in ["one", "two", "three", "four"] {
        send(&mut conn, [command!("LOCK.ACQUIRE", key, "holder", LEASE)]);
    }
    // They stand ahead of one crowd, which waits for them, and later wait for another crowd, which does not.
    send(&mut conn, (0..PROBES).map(|n| waits("one", "ahead", n)));
    for (key, crowd) in [
        ("one", "behind"),
        ("two", "behind"),
        ("three", "crowd"),
        ("four", "crowd"),
    ] {
        send(&mut conn, (0..CROWD).map(|n| waits(key, crowd, n)));
    }
    let mut meter = Meter::on(&server);
    let owners = count(CROWD);
    for (owner, what) in [
        ("late", "of an owner that nobody waits for"),
        ("ahead", "of an owner that as many others wait for"),
    ] {
        let mut took = Samples::default();
        for _ in 0..scale.crate_rounds.max(3) {
            let cost = meter.cost(&["LOCK.ACQUIRE"], || {
                let began = Instant::now();
                send(&mut conn, (0..PROBES).map(|n| waits("four", owner, n)));
                began.elapsed()
            });
            took.push(cost.usec[0] / PROBES as f64);
            send(
                &mut conn,
                (0..PROBES).map(|n| command!("LOCK.LEAVE", "four", name(owner, n))),
            );
        }
        report.bound(
            format!("a request {what}, which starts to wait among {owners} owners that wait at two keys each"),
            "µs",
            &took,
            MOST,
        );
    }
}

/// Readers of the requested lock, and as many owners that wait elsewhere.
const READERS: usize = 20_000;
/// How many of the readers wait, too.
const WAITING: usize = 2_000;

/// The search takes all its steps.
fn many_readers(scale: &Scale, report: &mut Report) {
    let server = Server::builder()
        .module_arg("mail-timeout", "60000")
        .module_arg("max-queued", "1000000")
        .start();
    let mut conn = server.connect();
    for (key, holder) in [
        ("elsewhere", "holder"),
        ("there", "holder"),
        ("mine", "asking##"),
    ] {
        let holder = name(holder, 0);
        send(&mut conn, [command!("LOCK.ACQUIRE", key, holder, LEASE)]);
    }
    let reads = |n| command!("LOCK.RLOCK", "read", name("reader", n), LEASE);
    send(&mut conn, (0..READERS).map(reads));
    for key in ["elsewhere", "there"] {
        send(&mut conn, (0..READERS).map(|n| waits(key, "other", n)));
        send(&mut conn, (0..WAITING).map(|n| waits(key, "reader", n)));
    }
    send(&mut conn, (0..CROWD).map(|n| waits("mine", "behind", n)));
    let took = probe(&server, &mut conn, scale, "read");
    let (readers, waiting, behind) = (count(READERS), count(WAITING), count(CROWD));
    report.bound(
        format!(
            "a request whom {behind} others wait for that comes to wait for {readers} readers, of which {waiting} wait elsewhere among \
             {readers} others"
        ),
        "µs",
        &took,
        MOST,
    );
}

/// How many owners of one task wait at one key.
const NAMES: usize = 5_000;
/// At how many keys the asking task waits.
const KEYS: usize = 40;

fn many_names(scale: &Scale, report: &mut Report) {
    let server = Server::builder()
        .module_arg("mail-timeout", "60000")
        .module_arg("max-queued", "1000000")
        .start();
    let mut conn = server.connect();
    let holds = |key: String, holder: String| command!("LOCK.ACQUIRE", key, holder, LEASE);
    let mine = (0..KEYS).map(|n| holds(name("key", n), name("holder", n)));
    let others = [
        ("read", "task##"),
        ("names", "holder"),
        ("mine", "asking##"),
    ];
    let others = others.map(|(key, holder)| holds(key.to_owned(), name(holder, 0)));
    send(&mut conn, mine.chain(others));
    send(&mut conn, (1..=NAMES).map(|n| waits("names", "task##", n)));
    send(&mut conn, (0..NAMES).map(|n| waits("names", "other", n)));
    for key in (0..KEYS).map(|n| name("key", n)) {
        send(&mut conn, (0..20).map(|n| waits(&key, "task##", n + NAMES)));
        send(&mut conn, [waits(&key, "asking##", 1)]);
        send(&mut conn, (0..20).map(|n| waits(&key, "other", n)));
    }
    send(&mut conn, (0..CROWD).map(|n| waits("mine", "behind", n)));
    let took = probe(&server, &mut conn, scale, "read");
    let names = count(NAMES);
    report.bound(
        format!("a request of a task that waits at {KEYS} keys, which comes to wait for a task with {names} waiting names"),
        "µs",
        &took,
        MOST,
    );
}

/// What a request of "asking" for `key` costs that comes to wait there.
fn probe(server: &Server, conn: &mut Conn, scale: &Scale, key: &str) -> Samples {
    let mut meter = Meter::on(server);
    let mut took = Samples::default();
    for _ in 0..scale.crate_rounds.max(3) {
        let cost = meter.cost(&["LOCK.ACQUIRE"], || {
            let began = Instant::now();
            for _ in 0..PROBES {
                let leave = command!("LOCK.LEAVE", key, name("asking##", 0));
                send(conn, [waits(key, "asking##", 0), leave]);
            }
            began.elapsed()
        });
        took.push(cost.usec[0] / PROBES as f64);
    }
    took
}

fn name(owner: &str, number: usize) -> String {
    format!("{owner}:{number}")
}

fn waits(key: &str, owner: &str, number: usize) -> Cmd {
    let mut request = command!("LOCK.ACQUIRE", key, name(owner, number), LEASE);
    request.arg("WAIT").arg(0).arg("MAIL").arg("box");
    request.arg("HOLDS").arg(1);
    request
}

fn send(conn: &mut Conn, commands: impl IntoIterator<Item = Cmd>) {
    let commands: Vec<Cmd> = commands.into_iter().collect();
    for reply in conn.pipeline(&commands) {
        reply.expect("no error");
    }
}
