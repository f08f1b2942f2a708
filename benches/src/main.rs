//! Benchmarks, side by side with what people use today.
//!
//! ```sh
//! make bench [ARGS="NAME… --quick"]
//! ```
//!
//! Each comparison runs on one build of a server, in rounds that alternate (A B A B …). The speed of a shared machine
//! varies, so only ratios of neighbouring rounds mean anything. `MORTISE_SERVER` and `MORTISE_MODULE` name the server and the
//! module, as for the tests. `--quick` shows that everything works, with counts too small to judge by. `--write` puts the figures of
//! `contention` and their plot into `docs`. The feature `clients` builds the comparison with other crates, and those crates.

#![forbid(unsafe_code)]
// Some of it is used only by the comparison with other crates.
#![cfg_attr(not(feature = "clients"), allow(dead_code))]

mod aof;
mod bystanders;
#[cfg(feature = "clients")]
mod clients;
#[cfg(feature = "clients")]
mod confirmed;
mod contention;
mod crowds;
mod deadlocks;
mod expiry;
mod guard;
mod handoff;
mod mail;
mod memory;
mod meter;
mod plot;
mod readers;
mod report;
mod rivals;
mod samples;
mod scale;
mod schemes;
mod several;
#[cfg(feature = "clients")]
mod stops;
mod uncontended;
mod wire;

use std::env;
use std::process::ExitCode;

use report::Report;
use scale::Scale;

type Bench = fn(&Scale, &mut Report);

/// In the order in which they run.
const BENCHES: &[(&str, Bench)] = &[
    ("uncontended", uncontended::run),
    ("readers", readers::run),
    ("guard", guard::run),
    ("memory", memory::run),
    ("bystanders", bystanders::run),
    ("expiry", expiry::run),
    ("aof", aof::run),
    ("contention", contention::run),
    ("handoff", handoff::run),
    ("mail", mail::run),
    ("crowds", crowds::run),
    ("deadlocks", deadlocks::run),
    ("several", several::run),
    #[cfg(feature = "clients")]
    ("clients", clients::run),
    #[cfg(feature = "clients")]
    ("confirmed", confirmed::run),
    #[cfg(feature = "clients")]
    ("stops", stops::run),
];

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    #[cfg(feature = "clients")]
    if let [option, url] = args.as_slice()
        && option == stops::HOLD
    {
        return match stops::hold(url) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let is_there = |option: &str| args.iter().any(|arg| arg == option);
    let (quick, write) = (is_there("--quick"), is_there("--write"));
    let wanted: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|arg| !["--quick", "--write"].contains(arg))
        .collect();
    if let Some(unknown) = wanted
        .iter()
        .find(|name| BENCHES.iter().all(|(known, _)| known != *name))
    {
        let names: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "no bench is called '{unknown}'; there are: {}, --quick and --write",
            names.join(" ")
        );
        return ExitCode::FAILURE;
    }

    let scale = if quick { Scale::quick() } else { Scale::full() };
    let mut report = Report::new(&args, quick);
    for (name, bench) in BENCHES {
        if wanted.is_empty() || wanted.contains(name) {
            eprintln!("{name} …");
            bench(&scale, &mut report);
        }
    }
    print!("{report}");
    if write && let Err(error) = report.write_plot() {
        eprintln!("nothing is written: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
