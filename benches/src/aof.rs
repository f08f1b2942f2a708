//! The cost of acquire and release when the server writes every effect to an AOF (`appendfsync no`).

use mortise_harness::Server;

use crate::meter::Meter;
use crate::report::Report;
use crate::samples::Samples;
use crate::scale::Scale;
use crate::schemes::Scheme;
use crate::uncontended::pairs;
use crate::wire::Clients;

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let server = Server::builder()
        .config("appendonly", "yes")
        .config("appendfsync", "no")
        .start();
    let mut clients = Clients::connect(&server);
    let mut meter = Meter::on(&server);
    let schemes = [Scheme::mortise(), Scheme::set_and_script(&server)];
    let mut usec = [Samples::default(), Samples::default()];
    let mut cpu = [Samples::default(), Samples::default()];
    for round in 0..=scale.rounds {
        for (n, scheme) in schemes.iter().enumerate() {
            let first = round * scale.pairs;
            let cost = pairs(scheme, first, scale.pairs, &mut clients, &mut meter);
            if round > 0 {
                usec[n].push(cost.usec.iter().sum::<f64>() / scale.pairs as f64);
                cpu[n].push(cost.cpu / scale.pairs as f64);
            }
        }
    }
    let [ours, theirs] = &usec;
    let rival = schemes[1].name;
    report.shown(
        format!("acquire + release with AOF, against {rival}"),
        "µs",
        ours,
        theirs,
    );
    let [ours, theirs] = &cpu;
    let what = "the same, main thread's CPU, network and AOF included";
    report.shown(what, "µs", ours, theirs);
}
