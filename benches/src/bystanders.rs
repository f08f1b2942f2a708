//! What the module costs clients that do not use it: GET, SET and DEL on a server with it against one without, and against one where
//! other clients use it.
//!
//! Two processes of one build differ by a percent or two because of their memory layout. So the benchmark starts several
//! pairs of servers, and takes the median over all.

use mortise_harness::{Server, cmd};

use crate::meter::Meter;
use crate::report::Report;
use crate::samples::Samples;
use crate::scale::Scale;
use crate::schemes::{key, owner};
use crate::wire::{Batch, Clients, batches};

const COMMANDS: [&str; 3] = ["set", "get", "del"];

/// A server under load.
struct Stand {
    server: Server,
    clients: Clients,
    meter: Meter,
}

impl Stand {
    fn on(server: Server) -> Stand {
        Stand {
            clients: Clients::connect(&server),
            meter: Meter::on(&server),
            server,
        }
    }
}

/// Microseconds a call, of each command and of all with the network.
#[derive(Default)]
struct Costs {
    commands: [Samples; 3],
    cpu: Samples,
}

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let [mut with, mut used, mut without] = std::array::from_fn(|_| Costs::default());
    for _ in 0..scale.server_pairs {
        let mut one = Stand::on(Server::start());
        let mut busy = Stand::on(Server::start());
        cmd!(busy.server.connect(), "LOCK.ACQUIRE lock a 3600000");
        let mut other = Stand::on(Server::builder().without_module().start());
        for round in 0..=scale.rounds {
            let batches = commands(scale.pairs);
            // The second one finds warmer caches, so they also take turns at being first.
            let mut turns = [
                (&mut one, &mut with),
                (&mut busy, &mut used),
                (&mut other, &mut without),
            ];
            turns.rotate_left(round % 3);
            for (stand, costs) in turns {
                measure(stand, costs, &batches, scale.pairs, round > 0);
            }
        }
    }
    for (n, command) in COMMANDS.iter().enumerate() {
        let what = format!(
            "{} with the module loaded against without",
            command.to_uppercase()
        );
        report.held(what, "µs", &with.commands[n], &without.commands[n], 1.02);
    }
    for (n, command) in COMMANDS.iter().enumerate() {
        let what = format!(
            "{} with the module loaded and a lock held against without",
            command.to_uppercase()
        );
        report.shown(what, "µs", &used.commands[n], &without.commands[n]);
    }
    let what = "main thread's CPU a command, network included, with the module against without";
    report.shown(what, "µs", &with.cpu, &without.cpu);
}

fn measure(stand: &mut Stand, costs: &mut Costs, batches: &[Batch], count: usize, counts: bool) {
    let cost = stand.meter.cost(&COMMANDS, || stand.clients.run(batches));
    if counts {
        let count = count as f64;
        for (samples, usec) in costs.commands.iter_mut().zip(&cost.usec) {
            samples.push(usec / count);
        }
        costs.cpu.push(cost.cpu / count / COMMANDS.len() as f64);
    }
}

/// Sets, gets and deletes `count` keys.
fn commands(count: usize) -> Vec<Batch> {
    let mut all = batches(0, count, "+OK", |batch, n| {
        batch.add(&[b"SET", key(n).as_bytes(), owner(n).as_bytes()]);
    });
    all.extend(batches(0, count, "$36", |batch, n| {
        batch.add(&[b"GET", key(n).as_bytes()]);
    }));
    all.extend(batches(0, count, ":1", |batch, n| {
        batch.add(&[b"DEL", key(n).as_bytes()]);
    }));
    all
}
