//! Work that needs several of a hundred locks: acquired at once by LOCK.MACQUIRE, or one after the other in the order of their
//! names, as careful programs do today.

use std::collections::BTreeSet;
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{Conn, Dice, Server, cmd, command};

use crate::meter::Meter;
use crate::report::Report;
use crate::samples::Samples;
use crate::scale::{SETTLING_IN, Scale};
use crate::wire::{Batch, CONNECTIONS, Clients, PIPELINE, in_turn};

const CLIENTS: usize = 64;
const KEYS: u64 = 100;
/// How many locks a client needs at a time.
const FEWEST: u64 = 2;
const MOST: u64 = 8;
const HOLD: Duration = Duration::from_millis(1);
const LEASE: &str = "60000";

#[derive(Clone, Copy)]
enum Way {
    AllAtOnce,
    OneByOne,
}

const WAYS: [(Way, &str); 2] = [
    (Way::AllAtOnce, "LOCK.MACQUIRE"),
    (Way::OneByOne, "sorted LOCK.ACQUIREs"),
];

#[derive(Default)]
struct Rounds {
    per_second: Samples,
    p50: Samples,
    p99: Samples,
    least: Samples,
    most: Samples,
}

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    contention(scale, report);
    cost(scale, report);
}

fn contention(scale: &Scale, report: &mut Report) {
    let server = Server::start();
    let mut rounds = WAYS.map(|_| Rounds::default());
    for _ in 0..scale.contention_rounds {
        for ((way, _), rounds) in WAYS.iter().zip(&mut rounds) {
            contend(*way, &server, scale.contention, rounds);
        }
    }
    let [ours, theirs] = &rounds;
    let what =
        |figure: &str| format!("{figure}, {CLIENTS} clients, {KEYS} keys, {FEWEST} to {MOST} each");
    for (figure, unit, ours, theirs) in [
        (
            "acquisitions per second",
            "/s",
            &ours.per_second,
            &theirs.per_second,
        ),
        ("p99 of the wait", "ms", &ours.p99, &theirs.p99),
        ("least served", "", &ours.least, &theirs.least),
    ] {
        report.shown(
            what(&format!("{figure} against sorted ACQUIREs")),
            unit,
            ours,
            theirs,
        );
    }
    for ((_, name), rounds) in WAYS.iter().zip(&rounds) {
        report.raw(
            &what(name),
            &[
                ("acquisitions", "/s", &rounds.per_second),
                ("wait p50", "ms", &rounds.p50),
                ("p99", "ms", &rounds.p99),
                ("least served", "", &rounds.least),
                ("most served", "", &rounds.most),
            ],
        );
    }
}

/// The result of one client: the milliseconds of each wait, and how often it had all its keys before the end.
struct Turns {
    waits: Vec<f64>,
    served: f64,
}

fn contend(way: Way, server: &Server, span: Duration, rounds: &mut Rounds) {
    let start = Barrier::new(CLIENTS + 1);
    let over = OnceLock::new();
    let (elapsed, turns) = thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (start, over) = (&start, &over);
                scope.spawn(move || {
                    let conn = server.connect();
                    start.wait();
                    take_turns(way, conn, number, over)
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        thread::sleep(span);
        let end = *over.get_or_init(Instant::now);
        let turns: Vec<Turns> = threads
            .into_iter()
            .map(|thread| thread.join().expect("a client that does not fail"))
            .collect();
        (end - began, turns)
    });
    let served: Samples = turns.iter().map(|turns| turns.served).collect();
    let all = turns.iter().map(|turns| turns.served).sum::<f64>();
    let waits: Samples = turns.into_iter().flat_map(|turns| turns.waits).collect();
    rounds.per_second.push(all / elapsed.as_secs_f64());
    rounds.p50.push(waits.median());
    rounds.p99.push(waits.quantile(0.99));
    rounds.least.push(served.min());
    rounds.most.push(served.max());
}

fn take_turns(way: Way, mut conn: Conn, number: usize, over: &OnceLock<Instant>) -> Turns {
    let (mut waits, mut served, mut turn) = (Vec::new(), 0.0, 0);
    // The same keys for both ways.
    let mut dice = Dice::new(number as u64);
    while over.get().is_none() {
        turn += 1;
        let (keys, owner) = (some_keys(&mut dice), format!("client:{number}:{turn}"));
        let asked = Instant::now();
        match way {
            Way::AllAtOnce => {
                cmd!(
                    conn,
                    "LOCK.MACQUIRE",
                    &owner,
                    LEASE,
                    keys.len(),
                    &keys,
                    "WAIT",
                    0
                );
            }
            Way::OneByOne => {
                for key in &keys {
                    cmd!(conn, "LOCK.ACQUIRE", key, &owner, LEASE, "WAIT", 0);
                }
            }
        }
        let granted = Instant::now();
        served += if over.get().is_none() { 1.0 } else { 0.0 };
        let counted = over.get().map_or(granted, |end| granted.min(*end));
        waits.push(counted.saturating_duration_since(asked).as_secs_f64() * 1e3);
        thread::sleep(HOLD);
        let release = |key: &String| command!("LOCK.RELEASE", key, &owner);
        conn.pipeline(&keys.iter().map(release).collect::<Vec<_>>());
    }
    Turns { waits, served }
}

/// Distinct keys, sorted.
fn some_keys(dice: &mut Dice) -> Vec<String> {
    let count = FEWEST + dice.roll(MOST - FEWEST + 1);
    let mut keys = BTreeSet::new();
    while (keys.len() as u64) < count {
        keys.insert(format!("several:{:02}", dice.roll(KEYS)));
    }
    keys.into_iter().collect()
}

/// The server's cost of an immediate acquisition and its releases, by the number of keys.
fn cost(scale: &Scale, report: &mut Report) {
    let server = Server::start();
    let mut clients = Clients::connect(&server);
    let mut meter = Meter::on(&server);
    thread::sleep(SETTLING_IN);
    let mut costs = [1, 16].map(|keys| (keys, Samples::default()));
    // The first round warms up.
    for round in 0..=scale.rounds {
        for (keys, samples) in &mut costs {
            let (acquires, releases) = batches(*keys, scale.pairs);
            let count = acquires.len() * PIPELINE;
            let batches = in_turn(acquires, releases);
            let cost = meter.cost(&["LOCK.MACQUIRE", "LOCK.RELEASE"], || clients.run(&batches));
            if round > 0 {
                samples.push(cost.usec[0] / count as f64);
            }
        }
    }
    let [(_, one), (_, sixteen)] = &costs;
    report.held(
        "LOCK.MACQUIRE of 16 free keys against 1",
        "µs",
        sixteen,
        one,
        16.0,
    );
}

fn batches(keys: usize, count: usize) -> (Vec<Batch>, Vec<Batch>) {
    let (mut acquires, mut releases) = (Vec::new(), Vec::new());
    for first in (0..count).step_by(PIPELINE) {
        let mut acquire = Batch::expecting(":");
        let mut release = Batch::expecting(":0");
        for number in first..first + PIPELINE {
            let owner = format!("owner:{number}");
            let names: Vec<_> = (0..keys).map(|key| format!("key:{number}:{key}")).collect();
            let numkeys = keys.to_string();
            let mut words = vec!["LOCK.MACQUIRE", &owner, LEASE, &numkeys];
            words.extend(names.iter().map(String::as_str));
            let words: Vec<_> = words.into_iter().map(str::as_bytes).collect();
            acquire.add(&words);
            for name in &names {
                release.add(&[b"LOCK.RELEASE", name.as_bytes(), owner.as_bytes()]);
            }
        }
        acquires.push(acquire);
        releases.push(release);
    }
    let whole = acquires.len() / CONNECTIONS * CONNECTIONS;
    acquires.truncate(whole);
    releases.truncate(whole);
    (acquires, releases)
}
