//! All leases end at once: how long other clients wait for a PING meanwhile, and how long it takes until the keys are gone.

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{Server, cmd, int};

use crate::report::{Report, count};
use crate::samples::Samples;
use crate::scale::{SETTLING_IN, Scale};
use crate::schemes::{LONG_LEASE, Scheme, key};
use crate::wire::Clients;

/// The time between two PINGs.
const PACE: Duration = Duration::from_millis(1);
/// After this many of them, it reads DBSIZE.
const PINGS_PER_LOOK: u32 = 20;

#[derive(Default)]
struct Sweep {
    /// Milliseconds.
    worst: Samples,
    p99: Samples,
    p50: Samples,
    /// Milliseconds from the end of the leases to an empty database.
    gone: Samples,
}

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let server = Server::start();
    thread::sleep(SETTLING_IN);
    let schemes = [Scheme::mortise(), Scheme::set_and_script(&server)];
    let mut sweeps = [Sweep::default(), Sweep::default()];
    for _ in 0..scale.expiries {
        for (scheme, sweep) in schemes.iter().zip(&mut sweeps) {
            let end = hold_until_one_moment(scheme, &server, scale.many);
            watch(&server, end, sweep);
        }
    }
    let [ours, theirs] = &sweeps;
    let what = |figure| {
        format!(
            "{figure} while {} leases end at once, against SET with TTL",
            count(scale.many)
        )
    };
    report.shown(what("worst PING"), "ms", &ours.worst, &theirs.worst);
    report.shown(what("p99 of PING"), "ms", &ours.p99, &theirs.p99);
    report.shown(what("p50 of PING"), "ms", &ours.p50, &theirs.p50);
    report.shown(
        what("time until the keys are gone"),
        "ms",
        &ours.gone,
        &theirs.gone,
    );
}

/// Acquires `count` locks whose leases all end at the returned moment.
fn hold_until_one_moment(scheme: &Scheme, server: &Server, count: usize) -> Instant {
    let mut clients = Clients::connect(server);
    let step = count / 20;
    // How far ahead the moment must be depends on the present speed of this machine.
    let began = Instant::now();
    clients.run(&scheme.acquires(0, step, LONG_LEASE, key));
    let mut ahead = began.elapsed() * 40 + Duration::from_millis(500);
    loop {
        cmd!(server.connect(), "FLUSHALL");
        let end = Instant::now() + ahead;
        let in_time = (0..count).step_by(step).all(|first| {
            let lease = end.saturating_duration_since(Instant::now()).as_millis() as u64;
            if lease > 0 {
                clients.run(&scheme.acquires(first, step, lease, key));
            }
            lease > 0
        });
        if in_time {
            return end;
        }
        ahead *= 2;
    }
}

/// Pings from the end of the leases until the database is empty.
fn watch(server: &Server, end: Instant, sweep: &mut Sweep) {
    let mut conn = server.connect();
    thread::sleep(end.saturating_duration_since(Instant::now()));
    let mut latencies = Samples::default();
    for turn in 0.. {
        let due = end + PACE * turn;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // A PING that had to wait for the reply to the one before counts from when it was due.
        let now = Instant::now();
        let sent = if now > due + PACE { due } else { now };
        cmd!(conn, "PING");
        latencies.push(sent.elapsed().as_secs_f64() * 1e3);
        if turn % PINGS_PER_LOOK == 0 && int(&cmd!(conn, "DBSIZE")) == 0 {
            break;
        }
    }
    sweep.gone.push(end.elapsed().as_secs_f64() * 1e3);
    sweep.worst.push(latencies.max());
    sweep.p99.push(latencies.quantile(0.99));
    sweep.p50.push(latencies.median());
}
