//! The client crate against the crates that people use today, in one process, on the same servers, in turns: on one server,
//! over a quorum with all servers up and with one that hangs; and the guard against its bare commands.

mod bare;
mod load;
mod one_server;
mod quorum;
mod rivals;
mod room;
mod stall;

use mortise_harness::Server;

use crate::clients::load::Outcome;
use crate::clients::rivals::Rival;
use crate::report::{Figure, Report};
use crate::samples::Samples;
use crate::scale::Scale;

/// The runtime that clients run in.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime can be built")
}

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let runtime = runtime();
    bare::run(&runtime, scale, report);
    one_server::run(&runtime, scale, report);
    quorum::run(&runtime, scale, report);
    stall::run(&runtime, scale, report);
    // A crate that still waits for a server keeps a thread.
    runtime.shutdown_background();
}

/// A server as people run it. One has the module, and nothing else differs.
fn server() -> Server {
    Server::builder().config("maxclients", "2000").start()
}

fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// The rounds of one rival.
#[derive(Debug, Default)]
struct Rounds {
    per_second: Samples,
    wait_p50: Samples,
    wait_p99: Samples,
    pair_p50: Samples,
    pair_p99: Samples,
    commands: Samples,
    least: Samples,
    most: Samples,
    gave_up: Samples,
    stuck: Samples,
    shared: Samples,
}

impl Rounds {
    fn push(&mut self, outcome: &Outcome) {
        self.per_second.push(outcome.per_second);
        self.wait_p50.push(outcome.waits.median());
        self.wait_p99.push(outcome.waits.quantile(0.99));
        self.pair_p50.push(outcome.pairs.median());
        self.pair_p99.push(outcome.pairs.quantile(0.99));
        self.commands.push(outcome.commands);
        self.least.push(outcome.least);
        self.most.push(outcome.most);
        self.gave_up.push(outcome.gave_up);
        self.stuck.push(outcome.stuck);
        self.shared.push(outcome.shared);
    }
}

/// Rounds of all rivals in turn.
fn in_turn(
    rivals: &[Rival],
    rounds: usize,
    mut round: impl FnMut(usize, Rival) -> Outcome,
) -> Vec<(Rival, Rounds)> {
    let mut all: Vec<(Rival, Rounds)> = rivals
        .iter()
        .map(|rival| (*rival, Rounds::default()))
        .collect();
    for number in 0..rounds {
        for (rival, rounds) in &mut all {
            rounds.push(&round(number, *rival));
        }
    }
    all
}

/// Compares Mortise, which is the first, with the others.
fn compare(report: &mut Report, what: &str, all: &[(Rival, Rounds)], latency: Latency) {
    let names: Vec<String> = all.iter().map(|(rival, _)| rival.name()).collect();
    let figure = |name, unit, compared, pick: fn(&Rounds) -> &Samples| Figure {
        name,
        unit,
        compared,
        samples: all.iter().map(|(_, rounds)| pick(rounds)).collect(),
    };
    let mut figures = vec![figure("locks", "/s", true, |it| &it.per_second)];
    figures.extend(match latency {
        Latency::Pair => [
            figure("acquire + release p50", "ms", true, |it| &it.pair_p50),
            figure("p99", "ms", true, |it| &it.pair_p99),
        ],
        Latency::Wait => [
            figure("wait p50", "ms", true, |it| &it.wait_p50),
            figure("p99", "ms", true, |it| &it.wait_p99),
        ],
    });
    if all.iter().all(|(_, rounds)| rounds.commands.max() > 0.0) {
        figures.push(figure("commands per lock", "", true, |it| &it.commands));
    }
    figures.extend([
        figure("least served client", "", false, |it| &it.least),
        figure("most served", "", false, |it| &it.most),
        figure("gave up", "", false, |it| &it.gave_up),
        figure("stuck", "", false, |it| &it.stuck),
        figure("two inside at once", "", false, |it| &it.shared),
    ]);
    report.table(what, &names, &figures);
    for (rival, rounds) in all {
        report.raw(
            &format!("{what}: {}", rival.name()),
            &[
                ("locks", "/s", &rounds.per_second),
                ("wait p50", "ms", &rounds.wait_p50),
                ("p99", "ms", &rounds.wait_p99),
                ("acquire + release p50", "ms", &rounds.pair_p50),
                ("p99", "ms", &rounds.pair_p99),
            ],
        );
    }
}

/// Which latency of a comparison to report.
#[derive(Debug, Clone, Copy)]
enum Latency {
    /// Acquire and release: what an uncontended lock costs.
    Pair,
    /// From the request to the grant: what matters if many want the lock.
    Wait,
}

/// Milliseconds as text.
fn millis(duration: std::time::Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
