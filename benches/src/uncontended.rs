//! Acquire and release without contention: many keys, each with another owner, while few or many other locks are held.

use std::thread;

use mortise_harness::Server;

use crate::meter::{Cost, Meter};
use crate::report::{Report, count};
use crate::samples::Samples;
use crate::scale::{SETTLING_IN, Scale};
use crate::schemes::{LEASE, Scheme, key};
use crate::wire::{CONNECTIONS, Clients, PIPELINE, in_turn};

/// A way to lock, in its own database, where a number of locks is held that way.
struct Stand {
    scheme: Scheme,
    db: usize,
    live: usize,
    /// Microseconds a pair: in its commands, in the first of them, and of the server's main thread with the network.
    usec: Samples,
    acquire: Samples,
    cpu: Samples,
    /// Thousands of pairs a second.
    throughput: Samples,
}

impl Stand {
    fn note(&mut self, cost: &Cost, pairs: usize) {
        let pairs = pairs as f64;
        self.usec.push(cost.usec.iter().sum::<f64>() / pairs);
        self.acquire.push(cost.usec[0] / pairs);
        self.cpu.push(cost.cpu / pairs);
        self.throughput
            .push(pairs / 1e3 / cost.elapsed.as_secs_f64());
    }
}

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let server = Server::start();
    let mut clients = Clients::connect(&server);
    let mut stands = stands(scale, &server, &mut clients);
    thread::sleep(SETTLING_IN);

    let mut meter = Meter::on(&server);
    // The first round warms up.
    for round in 0..=scale.rounds {
        for stand in &mut stands {
            clients.select(stand.db);
            let first = scale.many + round * scale.pairs;
            let cost = pairs(&stand.scheme, first, scale.pairs, &mut clients, &mut meter);
            if round > 0 {
                stand.note(&cost, scale.pairs);
            }
        }
    }
    compare(&stands, report);
}

/// Each scheme with few and with many locks held.
fn stands(scale: &Scale, server: &Server, clients: &mut Clients) -> Vec<Stand> {
    let schemes = [
        Some(Scheme::mortise()),
        Some(Scheme::set_and_script(server)),
        Scheme::set_and_delifeq(server),
        Some(Scheme::hash_scripts(server)),
    ];
    let mut stands = Vec::new();
    for live in [scale.few, scale.many] {
        for scheme in schemes.iter().flatten().cloned() {
            let db = stands.len();
            clients.select(db);
            scheme.hold(clients, live);
            stands.push(Stand {
                scheme,
                db,
                live,
                usec: Samples::default(),
                acquire: Samples::default(),
                cpu: Samples::default(),
                throughput: Samples::default(),
            });
        }
    }
    stands
}

/// `count` locks from number `first` on: each connection acquires a batch, and releases it with its next one.
pub(crate) fn pairs(
    scheme: &Scheme,
    first: usize,
    count: usize,
    clients: &mut Clients,
    meter: &mut Meter,
) -> Cost {
    let acquires = scheme.acquires(first, count, LEASE, key);
    let releases = scheme.releases(first, count, key);
    let batches = in_turn(acquires, releases);
    meter.cost(scheme.commands, || clients.run(&batches))
}

fn compare(stands: &[Stand], report: &mut Report) {
    let (few, many) = stands.split_at(stands.len() / 2);
    for stands in [few, many] {
        let (ours, theirs) = (&stands[0], &stands[1..]);
        for rival in theirs {
            let what = format!(
                "acquire + release against {}, {} held",
                rival.scheme.name,
                count(rival.live)
            );
            report.held(what, "µs", &ours.usec, &rival.usec, limit(&rival.scheme));
        }
    }
    for (n, (few, many)) in few.iter().zip(many).enumerate() {
        let what = format!(
            "{}, {} held against {}",
            many.scheme.name,
            count(many.live),
            count(few.live)
        );
        if n == 0 {
            report.held(what, "µs", &many.usec, &few.usec, 1.5);
        } else {
            // This is the cost of the server's own table of keys.
            report.shown(what, "µs", &many.usec, &few.usec);
        }
    }
    // Only ours and SET: the server's own table of keys costs more as it grows, for any scheme that adds a key.
    let growth = |n: usize| many[n].acquire.beyond(&few[n].acquire);
    report.shown(
        format!(
            "added cost of LOCK.ACQUIRE with {} held instead of {}, against that of SET",
            count(many[0].live),
            count(few[0].live)
        ),
        "µs",
        &growth(0),
        &growth(1),
    );
    let load = format!("{CONNECTIONS} connections × {PIPELINE} pipelined");
    for stand in stands {
        let name = format!("{}, {} held", stand.scheme.name, count(stand.live));
        report.raw(
            &name,
            &[
                ("CPU a pair", "µs", &stand.usec),
                (stand.scheme.commands[0], "µs", &stand.acquire),
                ("whole main thread a pair", "µs", &stand.cpu),
                (&load, "thousand pairs/s", &stand.throughput),
            ],
        );
    }
}

/// How much of a rival's cost ours may be.
fn limit(rival: &Scheme) -> f64 {
    match rival.commands {
        ["set", "evalsha"] => 0.6,
        ["set", "delifeq"] => 1.0,
        _ => 0.25,
    }
}
