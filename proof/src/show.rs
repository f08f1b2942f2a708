//! All runs: those that must find nothing, and the controls, with a protection taken away, that must find two inside.

use std::time::Duration;

use crate::client::Kind;
use crate::crowd::Part;
use crate::options::{Time, Wanted};
use crate::run::{Outcomes, Plan, run, usual, usual_play};
use crate::setup::{Data, LEASE, One, Replicated, Setup, Spoiled};

/// How long a control may look for two inside.
const CONTROL: Duration = Duration::from_secs(120);

struct Run {
    name: &'static str,
    start: fn() -> Box<dyn Setup>,
    parts: fn() -> Vec<Part>,
    is_control: bool,
}

const RUNS: [Run; 8] = [
    Run {
        name: "one server, append-only file",
        start: || Box::new(One::start(Data::Kept)),
        parts: usual,
        is_control: false,
    },
    Run {
        name: "one server, no data, a grace",
        start: || Box::new(One::start(Data::Lost { grace: LEASE })),
        parts: usual,
        is_control: false,
    },
    Run {
        name: "control: one server, no data, no grace",
        start: || Box::new(One::start(Data::Lost { grace: 0 })),
        parts: usual,
        is_control: true,
    },
    Run {
        name: "control: one server, append-only file, SET NX PX",
        start: || Box::new(One::start(Data::Kept).unbroken()),
        parts: plain,
        is_control: true,
    },
    Run {
        name: "replicas, a grace",
        start: || Box::new(Replicated::start(Spoiled::Nothing)),
        parts: usual,
        is_control: false,
    },
    Run {
        name: "control: replicas, no grace",
        start: || Box::new(Replicated::start(Spoiled::Grace)),
        parts: usual,
        is_control: true,
    },
    Run {
        name: "control: replicas, one too few required",
        start: || Box::new(Replicated::start(Spoiled::MinReplicas)),
        parts: usual,
        is_control: true,
    },
    Run {
        name: "control: replicas, a grace, SET NX PX",
        start: || Box::new(Replicated::start(Spoiled::Nothing)),
        parts: plain,
        is_control: true,
    },
];

fn plain() -> Vec<Part> {
    let kind = Kind::Plain;
    vec![Part { kind, tasks: 3 }; 3]
}

pub(crate) fn histories(wanted: &Wanted) -> Result<(), String> {
    println!("seed {}", wanted.seed);
    let is_wanted = |one: &&Run| {
        let mut names = wanted.names.iter();
        wanted.names.is_empty() || names.any(|name| one.name.starts_with(name.as_str()))
    };
    let runs: Vec<&Run> = RUNS.iter().filter(is_wanted).collect();
    let long = runs.iter().filter(|one| !one.is_control).count();
    let length = match wanted.time {
        Time::Each(time) => time,
        Time::InAll(time) => time / u32::try_from(long.max(1)).expect("a few"),
    };
    let mut failed = Vec::new();
    for one in runs {
        if !show(one, wanted, length)? {
            failed.push(one.name);
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        names => Err(format!("these came out wrong: {names:?}")),
    }
}

/// Whether it came out as it has to.
fn show(one: &Run, wanted: &Wanted, length: Duration) -> Result<bool, String> {
    let mut setup = (one.start)();
    let plan = Plan {
        seed: wanted.seed,
        length: if one.is_control { CONTROL } else { length },
        parts: (one.parts)(),
        play: usual_play(wanted.seed),
        is_control: one.is_control,
        is_told: wanted.is_told,
    };
    let outcomes = run(&plan, &mut *setup)?;
    let is_right = outcomes.violations.is_empty() != one.is_control;
    let verdict = if is_right { "ok" } else { "WRONG" };
    println!("{verdict}: {}{}", one.name, found(one, &outcomes));
    print!("{outcomes}");
    Ok(is_right)
}

fn found(one: &Run, outcomes: &Outcomes) -> String {
    match outcomes.violations.first() {
        Some(first) if one.is_control => {
            format!(": found two inside after {:.1} s", first.at as f64 / 1e9)
        }
        _ => String::new(),
    }
}
