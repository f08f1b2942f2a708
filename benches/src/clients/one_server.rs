//! Locks on one server, with one client and with many.

use std::time::Duration;

use mortise_harness::{Server, cmd};
use tokio::runtime::Runtime;

use crate::clients::load::Load;
use crate::clients::rivals::Rival;
use crate::clients::{Latency, Rounds, compare, in_turn, server, urls};
use crate::report::Report;
use crate::scale::Scale;

const MILLISECOND: Duration = Duration::from_millis(1);

pub(crate) fn run(runtime: &Runtime, scale: &Scale, report: &mut Report) {
    let servers = [server()];
    for (clients, what) in [
        (1, "one client"),
        (32, "32 clients, each with a lock of its own"),
    ] {
        let load = Load {
            clients,
            same: false,
            hold: Duration::ZERO,
            think: Duration::ZERO,
            span: scale.crate_span,
            patience: 10 * scale.contention,
        };
        let rivals = Rival::ON_ONE_SERVER;
        let rounds = measure(runtime, &servers, &rivals, scale.crate_rounds, load);
        compare(report, what, &rounds, Latency::Pair);
    }
    let fast = Rival::ON_ONE_SERVER.into_iter().filter_map(Rival::fast);
    let rivals: Vec<Rival> = Rival::ON_ONE_SERVER.into_iter().chain(fast).collect();
    let load = Load {
        clients: 32,
        same: true,
        hold: MILLISECOND,
        think: MILLISECOND,
        span: scale.contention,
        patience: 10 * scale.contention,
    };
    let rounds = measure(runtime, &servers, &rivals, scale.contention_rounds, load);
    compare(report, "32 clients, one lock", &rounds, Latency::Wait);
}

fn measure(
    runtime: &Runtime,
    servers: &[Server],
    rivals: &[Rival],
    rounds: usize,
    load: Load,
) -> Vec<(Rival, Rounds)> {
    let commands = || -> f64 {
        let stats = servers[0].info("stats");
        stats["total_commands_processed"].parse().expect("a number")
    };
    in_turn(rivals, rounds, |number, rival| {
        cmd!(servers[0].connect(), "FLUSHALL");
        let key = format!("round-{number}");
        runtime.block_on(load.run(rival, &urls(servers), &key, commands, || ()))
    })
}
