//! The time from a release to the next grant, also with thousands queued; and how thousands of waiters delay other clients when
//! all are granted, timed out or cut off at once.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mortise_harness::{Conn, Server, cmd, eventually, send};

use crate::meter::Meter;
use crate::report::{Report, count};
use crate::samples::Samples;
use crate::scale::Scale;

const KEY: &str = "handed-over";
const LEASE: u64 = 600_000;

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let most = (scale.waiters + 100).to_string();
    let server = Server::builder()
        .config("maxclients", &most)
        .config("lock.max-waiters", &most)
        .start();
    latency(&server, scale, report);
    queue(&server, scale, report);
    crowd(&server, scale, report);
}

/// One client waits and one releases: the time from sending the release to receiving the grant. Alternates with a PING.
fn latency(server: &Server, scale: &Scale, report: &mut Report) {
    let mut conns = [server.connect(), server.connect()];
    let (mut handoff, mut ping) = (Samples::default(), Samples::default());
    cmd!(conns[0], "LOCK.ACQUIRE", KEY, "0", LEASE);
    for turn in 0..scale.handoffs {
        let (holder, waiter) = (turn % 2, (turn + 1) % 2);
        send!(conns[waiter], "LOCK.ACQUIRE", KEY, waiter, LEASE, "WAIT", 0);
        server.await_blocked(&conns[waiter]);

        let began = Instant::now();
        cmd!(conns[holder], "PING");
        ping.push(micros(began));

        let began = Instant::now();
        send!(conns[holder], "LOCK.RELEASE", KEY, holder);
        conns[waiter].recv();
        handoff.push(micros(began));
        conns[holder].recv();
    }
    let last = scale.handoffs % 2;
    cmd!(conns[last], "LOCK.RELEASE", KEY, last);
    report.held(
        "hand-off latency p50, against PING p50",
        "µs",
        &Samples::from(handoff.median()),
        &Samples::from(ping.median()),
        4.0,
    );
    report.raw(
        "hand-off latency",
        &[("", "µs", &handoff), ("PING", "µs", &ping)],
    );
}

fn micros(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}

/// A queue of constant length: a client that has released waits again. Each owner uses one queue
/// only: owners that hold in one and wait in another would sooner or later close a cycle.
struct Line {
    holder: (String, Conn),
    waiters: VecDeque<(String, Conn)>,
}

impl Line {
    fn form(server: &Server, key: &str, waiters: usize) -> Line {
        let mut holder = server.connect();
        let first = format!("{key}-0");
        cmd!(holder, "LOCK.ACQUIRE", key, &first, LEASE);
        let waiters = (1..=waiters).map(|number| {
            let mut conn = server.connect();
            let owner = format!("{key}-{number}");
            send!(conn, "LOCK.ACQUIRE", key, &owner, LEASE, "WAIT", 0);
            (owner, conn)
        });
        Line {
            holder: (first, holder),
            waiters: waiters.collect(),
        }
    }

    /// Hands the lock on `times` times.
    fn advance(&mut self, key: &str, times: usize) -> Duration {
        let began = Instant::now();
        for _ in 0..times {
            let Some((owner, mut next)) = self.waiters.pop_front() else {
                break;
            };
            let (old_owner, old) = &mut self.holder;
            send!(old, "LOCK.RELEASE", key, &*old_owner);
            send!(old, "LOCK.ACQUIRE", key, &*old_owner, LEASE, "WAIT", 0);
            next.recv();
            old.recv();
            let old = std::mem::replace(&mut self.holder, (owner, next));
            self.waiters.push_back(old);
        }
        began.elapsed()
    }
}

fn queue(server: &Server, scale: &Scale, report: &mut Report) {
    let mut short = Line::form(server, "short", 1);
    let mut long = Line::form(server, "long", scale.waiters - 50);
    await_waiters(server, scale.waiters - 49);
    let mut meter = Meter::on(server);
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for round in 0..=scale.contention_rounds * 3 {
        for (line, key, samples) in [
            (&mut long, "long", &mut ours),
            (&mut short, "short", &mut theirs),
        ] {
            let cost = meter.cost(&["LOCK.RELEASE"], || line.advance(key, scale.handoffs));
            if round > 0 {
                samples.push(cost.usec.iter().sum::<f64>() / scale.handoffs as f64);
            }
        }
    }
    report.held(
        format!(
            "LOCK.RELEASE that hands over, {} waiters queued against 1",
            count(scale.waiters - 50)
        ),
        "µs",
        &ours,
        &theirs,
        2.0,
    );
    drop((short, long));
    await_waiters(server, 0);
}

/// All clients wait; then all are granted, timed out or cut off, while another client sends PINGs.
fn crowd(server: &Server, scale: &Scale, report: &mut Report) {
    let waiters = scale.waiters - 50;
    for (place, key_of) in [
        (
            "on one lock",
            (|_| "crowded".to_owned()) as fn(usize) -> String,
        ),
        ("on as many locks", |n| format!("crowded:{n}")),
    ] {
        for (what, wait) in [("time out", 1), ("are cut off", 0), ("are served", 0)] {
            if what == "are served" && key_of(0) == key_of(1) {
                // One at a time, as `queue` measures it.
                continue;
            }
            let mut holder = server.connect();
            for n in 0..waiters {
                cmd!(
                    holder,
                    "LOCK.ACQUIRE",
                    key_of(n),
                    "holder",
                    LEASE,
                    "HOLDS",
                    1
                );
            }
            // All waits time out together, however long it takes to queue them.
            let end = Instant::now() + Duration::from_secs(20);
            let conns: Vec<Conn> = (0..waiters)
                .map(|n| {
                    let mut conn = server.connect();
                    let left = end.saturating_duration_since(Instant::now()).as_millis() as u64;
                    let wait = if wait == 0 { 0 } else { left.max(1) };
                    send!(conn, "LOCK.ACQUIRE", key_of(n), n, LEASE, "WAIT", wait);
                    conn
                })
                .collect();
            await_waiters(server, waiters);
            if what == "are served" {
                (0..waiters).for_each(|n| send!(holder, "LOCK.RELEASE", key_of(n), "holder"));
                report_pings(server, report, waiters, what, place);
                (0..waiters).for_each(|_| drop(holder.recv()));
                drop(conns);
            } else if wait == 0 {
                let closing = std::thread::spawn(move || drop(conns));
                report_pings(server, report, waiters, what, place);
                closing.join().expect("closing does not fail");
            } else {
                std::thread::sleep(end.saturating_duration_since(Instant::now()));
                report_pings(server, report, waiters, what, place);
            }
            cmd!(holder, "FLUSHALL");
        }
    }
}

fn report_pings(server: &Server, report: &mut Report, waiters: usize, what: &str, place: &str) {
    let mut conn = server.connect();
    let began = Instant::now();
    let mut pings = Samples::default();
    loop {
        let sent = Instant::now();
        cmd!(conn, "PING");
        pings.push(sent.elapsed().as_secs_f64() * 1e3);
        let blocked = &server.info("lock")["lock_blocked_clients"];
        if blocked == "0" {
            break;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{blocked} still wait"
        );
    }
    let gone = Samples::from(began.elapsed().as_secs_f64() * 1e3);
    report.raw(
        &format!("{} waiters {place} {what} at once", count(waiters)),
        &[
            ("worst PING", "ms", &Samples::from(pings.max())),
            ("p50 of PING", "ms", &Samples::from(pings.median())),
            ("until the last is gone", "ms", &gone),
        ],
    );
}

fn await_waiters(server: &Server, waiters: usize) {
    eventually("the queue has its length", || {
        server.info("lock")["lock_waiters"] == waiters.to_string()
    });
}
