//! Locks over three servers: all of them up, and one that hangs.

use std::time::Duration;

use mortise_harness::{Server, cmd};
use tokio::runtime::Runtime;

use crate::clients::load::Load;
use crate::clients::rivals::Rival;
use crate::clients::{Latency, compare, in_turn, server, urls};
use crate::report::Report;
use crate::scale::Scale;

const MILLISECOND: Duration = Duration::from_millis(1);

pub(crate) fn run(runtime: &Runtime, scale: &Scale, report: &mut Report) {
    let servers = [server(), server(), server()];
    let alone = Load {
        clients: 1,
        same: true,
        hold: Duration::ZERO,
        think: Duration::ZERO,
        span: scale.crate_span,
        patience: scale.patience,
    };
    let crowd = Load {
        clients: 8,
        hold: MILLISECOND,
        think: MILLISECOND,
        span: scale.contention,
        ..alone
    };
    let alone_in_trouble = Load {
        span: scale.contention,
        ..alone
    };
    let few = scale.contention_rounds;
    // The many clients of our own crate: with all servers up, and with one that hangs.
    let mut own = Vec::new();
    for (what, load, rounds, hangs) in [
        ("3 servers, one client", alone, scale.crate_rounds, false),
        ("3 servers, 8 clients, one lock", crowd, few, false),
        (
            "3 servers, one hangs, one client",
            alone_in_trouble,
            few,
            true,
        ),
        (
            "3 servers, one hangs, 8 clients, one lock",
            crowd,
            few,
            true,
        ),
    ] {
        let latency = match load.clients {
            1 => Latency::Pair,
            _ => Latency::Wait,
        };
        let rounds = in_turn(&Rival::ON_A_QUORUM, rounds, |number, rival| {
            for server in &servers {
                cmd!(server.connect(), "FLUSHALL");
            }
            // Another one each time, because some crates go through them in order.
            let trouble = || hangs.then(|| Hanging::new(&servers[number % servers.len()]));
            // A new name, because a crate may have got stuck with an earlier one.
            let key = format!(
                "{}-{hangs}-{}-{number}",
                rival.name().replace(' ', "-"),
                load.clients
            );
            runtime.block_on(load.run(rival, &urls(&servers), &key, || 0.0, trouble))
        });
        compare(report, what, &rounds, latency);
        if load.clients > 1 {
            own.push(rounds[0].1.per_second.clone());
        }
    }
    report.held(
        "3 servers, 8 clients, one lock: locks a second with all up, against one that hangs",
        "/s",
        &own[0],
        &own[1],
        1.0 / 0.9,
    );
}

/// A stopped server, which continues when this is dropped.
#[derive(Debug)]
pub(crate) struct Hanging<'a>(&'a Server);

impl Hanging<'_> {
    pub(crate) fn new(server: &Server) -> Hanging<'_> {
        server.stop_signal();
        Hanging(server)
    }
}

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.cont_signal();
    }
}
