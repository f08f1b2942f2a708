//! One of many readers leaves and comes back: a lock with many readers against as many locks with one reader each, so
//! that both keep the same number of holds in memory. The same with a limit: permits of one pool, and of as many
//! pools, against readers without a limit.

use std::thread;

use mortise_harness::Server;

use crate::meter::Meter;
use crate::report::{Report, count};
use crate::samples::Samples;
use crate::scale::{SETTLING_IN, Scale};
use crate::schemes::{LONG_LEASE, Scheme, key};
use crate::wire::{Batch, CONNECTIONS, Clients, PIPELINE, in_turn};

/// How the readers are spread over locks.
struct Crowd {
    name: &'static str,
    scheme: Scheme,
    /// The key that reader n holds.
    key: fn(usize) -> String,
    release: Samples,
    pair: Samples,
}

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let server = Server::start();
    let mut clients = Clients::connect(&server);
    let together = |_| "shared".to_owned();
    let crowd = |name, scheme, key| Crowd {
        name,
        scheme,
        key,
        release: Samples::default(),
        pair: Samples::default(),
    };
    let mut crowds = [
        crowd("among all", Scheme::mortise_read(), together),
        crowd("alone", Scheme::mortise_read(), key),
        crowd("of one pool", Scheme::mortise_limit(), |_| {
            "pool".to_owned()
        }),
        crowd("of a pool each", Scheme::mortise_limit(), |n| {
            format!("pool:{n}")
        }),
        crowd(
            "scripts, among all",
            Scheme::set_read_scripts(&server),
            |_| "scripted".to_owned(),
        ),
    ];
    for crowd in &crowds {
        clients.run(
            &crowd
                .scheme
                .acquires(0, scale.readers, LONG_LEASE, crowd.key),
        );
    }
    thread::sleep(SETTLING_IN);

    let mut meter = Meter::on(&server);
    // So many readers that each connection has a full batch; the others stay.
    let busy = scale.readers - scale.readers % (CONNECTIONS * PIPELINE);
    for round in 0..=scale.rounds {
        for crowd in &mut crowds {
            let batches = batches(crowd, busy);
            let cost = meter.cost(crowd.scheme.commands, || clients.run(&batches));
            if round > 0 {
                let pairs = busy as f64;
                crowd.pair.push(cost.usec.iter().sum::<f64>() / pairs);
                crowd.release.push(cost.usec.last().unwrap_or(&0.0) / pairs);
            }
        }
    }

    let [many, one, pool, pools, scripts] = &crowds;
    let readers = count(scale.readers);
    report.held(
        format!("release of one reader among {readers} against among 1"),
        "µs",
        &many.release,
        &one.release,
        1.5,
    );
    report.shown(
        format!("read acquire + release among {readers} against among 1"),
        "µs",
        &many.pair,
        &one.pair,
    );
    report.shown(
        format!(
            "read acquire + release among {readers} against {}",
            scripts.scheme.name
        ),
        "µs",
        &many.pair,
        &scripts.pair,
    );
    for (limited, free) in [(pools, one), (pool, many)] {
        report.held(
            format!(
                "read acquire + release with LIMIT against without, {readers} {}",
                limited.name
            ),
            "µs",
            &limited.pair,
            &free.pair,
            1.1,
        );
    }
    for crowd in [many, one, pool, pools] {
        report.raw(
            &format!("a reader {}", crowd.name),
            &[
                ("LOCK.RELEASE", "µs", &crowd.release),
                ("with LOCK.RLOCK", "µs", &crowd.pair),
            ],
        );
    }
}

/// Each reader releases, and acquires again with the next batch of its connection.
fn batches(crowd: &Crowd, readers: usize) -> Vec<Batch> {
    let releases = crowd.scheme.releases(0, readers, crowd.key);
    let acquires = crowd.scheme.acquires(0, readers, LONG_LEASE, crowd.key);
    in_turn(releases, acquires)
}
