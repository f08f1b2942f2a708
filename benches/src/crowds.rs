//! What crowds cost other clients while they wait, or when they end all at once: keys with waiters in a cluster, and readers of one lock.

use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::redis::Cmd;
use mortise_harness::{Cluster, Server, cmd, command, int, send};

use crate::meter::Meter;
use crate::report::{Report, count};
use crate::samples::Samples;
use crate::scale::Scale;

const LONG_LEASE: u64 = 3_600_000;
/// The lease that ends with a waiter, in milliseconds.
const SHORT_LEASE: u64 = 50;
/// Commands in one write.
const BATCH: usize = 500;
/// The time from one PING to the next.
const PACE: Duration = Duration::from_millis(1);

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    keys_with_waiters(scale, report);
    readers_that_end(scale, report);
}

fn node() -> mortise_harness::Builder {
    Server::builder().module_arg("mail-timeout", "60000")
}

/// Measures in a cluster of one node that owns all slots.
fn keys_with_waiters(scale: &Scale, report: &mut Report) {
    let cluster = Cluster::start(1, node);
    let server = &cluster.primaries[0];
    let mut meter = Meter::on(server);
    let alone = idle(&mut meter, scale.idle);
    wait_at_keys(server, scale.waiting_keys);
    let waiting = idle(&mut meter, scale.idle);
    let keys = count(scale.waiting_keys);
    report.bound(
        format!("server CPU while {keys} keys have waiters and nothing happens, in a cluster"),
        "% of a core",
        &Samples::from(waiting),
        2.0,
    );
    let late = lateness(server, scale.late);
    report.bound(
        "how late a hand-off comes after a lease ended meanwhile, p50",
        "ms",
        &Samples::from(late.median()),
        3.0,
    );
    report.raw(
        "keys with waiters",
        &[
            ("CPU with none", "%", &Samples::from(alone)),
            ("how late", "ms", &late),
        ],
    );
}

/// Percent of a core that the idle server uses.
fn idle(meter: &mut Meter, span: Duration) -> f64 {
    let (before, began) = (meter.cpu(), Instant::now());
    thread::sleep(span);
    100.0 * (meter.cpu() - before) / began.elapsed().as_secs_f64() / 1e6
}

fn wait_at_keys(server: &Server, keys: usize) {
    let mut conn = server.connect();
    for first in (0..keys).step_by(BATCH) {
        let numbers = first..(first + BATCH).min(keys);
        let hold = |n| command!("LOCK.ACQUIRE", format!("key:{n}"), "a", LONG_LEASE);
        let wait = |n| {
            let mut request = command!("LOCK.ACQUIRE", format!("key:{n}"), "b", LONG_LEASE);
            request.arg("WAIT").arg(0).arg("MAIL").arg("box");
            request.arg("HOLDS").arg(1);
            request
        };
        let commands: Vec<Cmd> = numbers.clone().map(hold).chain(numbers.map(wait)).collect();
        for reply in conn.pipeline(&commands) {
            reply.expect("no error");
        }
    }
    assert_eq!(server.gauge("waiters"), keys as i64);
}

/// Milliseconds from the end of a lease to the grant, seen by a client.
fn lateness(server: &Server, leases: usize) -> Samples {
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let mut late = Samples::default();
    for _ in 0..leases {
        cmd!(holder, "LOCK.ACQUIRE", "late", "a", SHORT_LEASE);
        let end = Instant::now() + Duration::from_millis(SHORT_LEASE);
        send!(waiter, "LOCK.ACQUIRE", "late", "b", LONG_LEASE, "WAIT", 0);
        int(&waiter.recv());
        late.push(Instant::now().saturating_duration_since(end).as_secs_f64() * 1e3);
        cmd!(waiter, "LOCK.RELEASE", "late", "b");
    }
    late
}

fn readers_that_end(scale: &Scale, report: &mut Report) {
    let server = node().start();
    let (mut worst, mut gone) = (Samples::default(), Samples::default());
    for _ in 0..scale.expiries {
        let end = read_until_one_moment(&server, scale.crowd);
        let pings = ping_until_counted(&server, end, scale.crowd as i64);
        worst.push(pings.max());
        gone.push(end.elapsed().as_secs_f64() * 1e3);
    }
    let readers = count(scale.crowd);
    report.bound(
        format!("worst PING while {readers} readers of one lock end in one millisecond"),
        "ms",
        &worst,
        20.0,
    );
    let stretch = server.gauge("longest_stretch_us") as f64 / 1e3;
    report.raw(
        "readers that end",
        &[
            ("all counted after", "ms", &gone),
            ("the longest stretch", "ms of CPU", &Samples::from(stretch)),
        ],
    );
}

/// Makes `readers` owners read one lock, all until the returned moment.
fn read_until_one_moment(server: &Server, readers: usize) -> Instant {
    let mut conn = server.connect();
    let mut ahead = Duration::from_secs(4);
    loop {
        cmd!(conn, "DEL", "crowd");
        let end = Instant::now() + ahead;
        let in_time = (0..readers).step_by(BATCH).all(|first| {
            let lease = end.saturating_duration_since(Instant::now()).as_millis() as u64;
            let read = |n| {
                let owner = format!("0f8fad5b-d9cb-469f-a165-7086{n:08}");
                command!("LOCK.RLOCK", "crowd", owner, lease)
            };
            if lease > 0 {
                let commands: Vec<Cmd> = (first..first + BATCH).map(read).collect();
                conn.pipeline(&commands);
            }
            lease > 0
        });
        if in_time {
            return end;
        }
        ahead *= 2;
    }
}

/// Pings from the end of the leases until all have been counted.
fn ping_until_counted(server: &Server, end: Instant, readers: i64) -> Samples {
    let mut conn = server.connect();
    let before = server.gauge("total_expiries");
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
        if turn % 100 == 99 && server.gauge("total_expiries") - before >= readers {
            break;
        }
    }
    latencies
}
