//! Many clients compete for one lock. Each holds it for a millisecond, thinks for a millisecond, and acquires it again.

use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::Server;

use crate::plot;
use crate::report::Report;
use crate::rivals::{Client, Rival};
use crate::samples::Samples;
use crate::scale::Scale;

const HOLD: Duration = Duration::from_millis(1);
const THINK: Duration = Duration::from_millis(1);
const CLIENTS: [usize; 4] = [1, 8, 32, 256];

/// The result of one run of one rival.
struct Outcome {
    per_second: f64,
    waits: Samples,
    commands: f64,
    least: f64,
    most: f64,
}

#[derive(Default)]
struct Rounds {
    per_second: Samples,
    p50: Samples,
    p99: Samples,
    max: Samples,
    commands: Samples,
    least: Samples,
    most: Samples,
}

impl Rounds {
    fn push(&mut self, outcome: &Outcome) {
        self.per_second.push(outcome.per_second);
        self.p50.push(outcome.waits.median());
        self.p99.push(outcome.waits.quantile(0.99));
        self.max.push(outcome.waits.max());
        self.commands.push(outcome.commands);
        self.least.push(outcome.least);
        self.most.push(outcome.most);
    }
}

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let server = Server::builder()
        .config("maxclients", "2000")
        .config("lock.max-waiters", "1000")
        .start();
    for clients in CLIENTS {
        let mut rounds: Vec<Rounds> = Rival::ALL.iter().map(|_| Rounds::default()).collect();
        for _ in 0..scale.contention_rounds {
            for (rival, rounds) in Rival::ALL.iter().zip(&mut rounds) {
                rounds.push(&contend(*rival, &server, clients, scale.contention));
            }
        }
        compare(report, clients, &rounds);
    }
}

fn compare(report: &mut Report, clients: usize, rounds: &[Rounds]) {
    let [ours, theirs @ ..] = rounds else { return };
    let what = |figure: &str| format!("{figure}, {clients} clients");
    if clients == 32 {
        let one = ours.commands.against(&ours.commands);
        report.held(
            what("commands per contended acquisition"),
            "",
            &ours.commands,
            &one,
            2.0,
        );
    }
    for (rival, theirs) in Rival::ALL[1..].iter().zip(theirs) {
        if clients == 32 || *rival == Rival::BareToken {
            report.shown(
                what(&format!("acquisitions per second against {}", rival.name())),
                "/s",
                &ours.per_second,
                &theirs.per_second,
            );
            report.shown(
                what(&format!("p99 of the wait against {}", rival.name())),
                "ms",
                &ours.p99,
                &theirs.p99,
            );
        }
    }
    for (rival, rounds) in Rival::ALL.iter().zip(rounds) {
        report.raw(
            &what(&rival.name()),
            &[
                ("acquisitions", "/s", &rounds.per_second),
                ("wait p50", "ms", &rounds.p50),
                ("p99", "ms", &rounds.p99),
                ("max", "ms", &rounds.max),
                ("commands per acquisition", "", &rounds.commands),
                ("least served", "", &rounds.least),
                ("most served", "", &rounds.most),
            ],
        );
        report.plot(plot::Row {
            clients,
            rival: rival.name(),
            ours: *rival == Rival::Mortise,
            figures: vec![
                ("rate", rounds.per_second.median()),
                ("p50", rounds.p50.median()),
                ("p99", rounds.p99.median()),
                ("max", rounds.max.median()),
                ("commands", rounds.commands.median()),
                ("least", rounds.least.median()),
                ("most", rounds.most.median()),
            ],
        });
    }
}

/// The result of one client.
struct Turns {
    /// In milliseconds. A wait that is not over at the end counts with its length until then;
    /// otherwise clients that are never granted would improve the figure.
    waits: Vec<f64>,
    /// How often it was granted before the end.
    served: f64,
    commands: f64,
}

fn contend(rival: Rival, server: &Server, clients: usize, span: Duration) -> Outcome {
    rival.prepare(server);
    let start = Barrier::new(clients + 1);
    let over = OnceLock::new();
    let (elapsed, turns) = thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|number| {
                let (start, over) = (&start, &over);
                scope.spawn(move || {
                    let client = Client::connect(rival, server, number);
                    start.wait();
                    take_turns(client, over)
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
    let commands: Samples = turns.iter().map(|turns| turns.commands).collect();
    let all = turns.iter().map(|turns| turns.served).sum::<f64>();
    Outcome {
        per_second: all / elapsed.as_secs_f64(),
        commands: commands.mean(),
        waits: turns.into_iter().flat_map(|turns| turns.waits).collect(),
        least: served.min(),
        most: served.max(),
    }
}

fn take_turns(mut client: Client, over: &OnceLock<Instant>) -> Turns {
    let (mut waits, mut served, mut acquired) = (Vec::new(), 0, 0);
    while over.get().is_none() {
        let asked = Instant::now();
        client.acquire();
        let granted = Instant::now();
        acquired += 1;
        served += i32::from(over.get().is_none());
        let counted = over.get().map_or(granted, |end| granted.min(*end));
        waits.push(counted.saturating_duration_since(asked).as_secs_f64() * 1e3);
        thread::sleep(HOLD);
        client.release();
        thread::sleep(THINK);
    }
    Turns {
        waits,
        served: f64::from(served),
        commands: client.commands as f64 / f64::from(acquired),
    }
}
