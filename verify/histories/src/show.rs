//! All runs: those that must find nothing, and the controls, with a protection taken away, that must find two inside.

use std::time::Duration;

use crate::client::Kind;
use crate::crowd::{Part, Play};
use crate::languages::{self, Worker};
use crate::options::{Time, Wanted};
use crate::page;
use crate::run::{Outcomes, Plan, run, usual, usual_play};
use crate::setup::{
    Clustered, Confirmed, Data, LEASE, Omitted, One, Promotion, Protection, Replicated, Setup,
    Several, Spoiled, Watched,
};

/// What the first columns of the tables are called.
const SETUPS: &str = "set-up: grants, guarded writes, time";
const CONTROLS: &str = "control";
/// How long a control may search for two inside.
const CONTROL: Duration = Duration::from_secs(120);

struct Run {
    name: &'static str,
    start: fn(&Play) -> Box<dyn Setup>,
    parts: fn() -> Vec<Part>,
    is_control: bool,
}

const RUNS: &[Run] = &[
    right(
        "one server, append-only file",
        |_| Box::new(One::start(Data::Kept)),
        usual,
    ),
    right(
        "one server, no data, a grace",
        |_| Box::new(One::start(Data::Lost { grace: LEASE })),
        usual,
    ),
    right(
        "replicas, a grace",
        |_| Box::new(Replicated::start(Spoiled::Nothing)),
        usual,
    ),
    right(
        "Sentinel, a grace",
        |_| Box::new(Watched::start(Protection::Whole)),
        usual,
    ),
    right(
        "cluster, a grace",
        |play| Box::new(Clustered::start(Promotion::Grace, &play.keys())),
        usual,
    ),
    right(
        "Redlock of five, a grace",
        |_| Box::new(Several::start(Several::GRACE)),
        libraries,
    ),
    right(
        "confirmed, two nodes",
        |_| Box::new(Confirmed::start(2, Omitted::Nothing)),
        usual,
    ),
    right(
        "confirmed, three nodes",
        |_| Box::new(Confirmed::start(3, Omitted::Nothing)),
        usual,
    ),
    right(
        "confirmed, Sentinel",
        |_| Box::new(Watched::start(Protection::Confirmed)),
        usual,
    ),
    right(
        "confirmed, cluster",
        |play| Box::new(Clustered::start(Promotion::Confirmed, &play.keys())),
        usual,
    ),
    control(
        "control: one server, no data, no grace",
        |_| Box::new(One::start(Data::Lost { grace: 0 })),
        usual,
    ),
    control(
        "control: one server, append-only file, SET NX PX",
        |_| Box::new(One::start(Data::Kept).unbroken()),
        plain,
    ),
    control(
        "control: replicas, no grace",
        |_| Box::new(Replicated::start(Spoiled::Grace)),
        usual,
    ),
    control(
        "control: replicas, one too few required",
        |_| Box::new(Replicated::start(Spoiled::MinReplicas)),
        usual,
    ),
    control(
        "control: replicas, a lag of a minute allowed",
        |_| Box::new(Replicated::start(Spoiled::MaxLag)),
        usual,
    ),
    control(
        "control: replicas, leases longer than the grace",
        |_| Box::new(Replicated::start(Spoiled::MaxLease)),
        usual,
    ),
    control(
        "control: replicas, a grace, SET NX PX",
        |_| Box::new(Replicated::start(Spoiled::Nothing)),
        plain,
    ),
    control(
        "control: Sentinel, no grace",
        |_| Box::new(Watched::start(Protection::NoGrace)),
        usual,
    ),
    control(
        "control: Sentinel, no replicas required",
        |_| Box::new(Watched::start(Protection::NoReplicas)),
        usual,
    ),
    control(
        "control: cluster, no grace",
        |play| Box::new(Clustered::start(Promotion::Nothing, &play.keys())),
        usual,
    ),
    control(
        "control: Redlock of five, no grace",
        |_| Box::new(Several::start(0)),
        libraries,
    ),
    control(
        "control: Redlock of five, a grace, by SET NX PX",
        |_| Box::new(Several::start(Several::GRACE)),
        plain,
    ),
    control(
        "control: confirmed, no WAIT",
        |_| Box::new(Confirmed::start(2, Omitted::Confirmation)),
        plain_commands,
    ),
    control(
        "control: confirmed, PING in place of RENEW",
        |_| Box::new(Confirmed::start(2, Omitted::Renewal)),
        plain_commands,
    ),
    control(
        "control: confirmed, one replica of two",
        |_| Box::new(Confirmed::start(3, Omitted::Replica)),
        plain_commands,
    ),
    control(
        "control: confirmed, no grace after a start",
        |_| Box::new(Confirmed::start(2, Omitted::Grace)),
        plain_commands,
    ),
    #[cfg(feature = "peers")]
    control(
        "control: one server, append-only file, rslock",
        |_| Box::new(One::start(Data::Kept).unbroken()),
        || alike(Kind::Rslock),
    ),
    #[cfg(feature = "peers")]
    control(
        "control: one server, append-only file, redlock",
        |_| Box::new(One::start(Data::Kept).unbroken()),
        || alike(Kind::Redlock),
    ),
    #[cfg(feature = "peers")]
    control(
        "control: Redlock of five, a grace, by rslock",
        |_| Box::new(Several::start(Several::GRACE)),
        || alike(Kind::Rslock),
    ),
    #[cfg(feature = "peers")]
    control(
        "control: Redlock of five, a grace, by redlock",
        |_| Box::new(Several::start(Several::GRACE)),
        || alike(Kind::Redlock),
    ),
];

/// A run that must find nothing.
const fn right(
    name: &'static str,
    start: fn(&Play) -> Box<dyn Setup>,
    parts: fn() -> Vec<Part>,
) -> Run {
    Run {
        name,
        start,
        parts,
        is_control: false,
    }
}

/// A run that must find two inside.
const fn control(
    name: &'static str,
    start: fn(&Play) -> Box<dyn Setup>,
    parts: fn() -> Vec<Part>,
) -> Run {
    Run {
        name,
        start,
        parts,
        is_control: true,
    }
}

/// Clients that confirm by themselves.
fn plain_commands() -> Vec<Part> {
    vec![
        Part::Ours(Kind::Blocked, 3),
        Part::Ours(Kind::Blocked, 3),
        Part::Ours(Kind::Mail, 3),
        Part::Ours(Kind::Mail, 3),
    ]
}

fn libraries() -> Vec<Part> {
    vec![Part::Ours(Kind::Library, 3); 4]
}

fn plain() -> Vec<Part> {
    alike(Kind::Plain)
}

fn alike(kind: Kind) -> Vec<Part> {
    vec![Part::Ours(kind, 3); 3]
}

pub(crate) fn histories(wanted: &Wanted) -> Result<(), String> {
    println!("seed {}", wanted.seed);
    let is_wanted = |one: &&Run| {
        let mut names = wanted.names.iter();
        wanted.names.is_empty() || names.any(|name| one.name.starts_with(name.as_str()))
    };
    let workers = languages::workers(&wanted.languages)?;
    let runs: Vec<&Run> = RUNS.iter().filter(is_wanted).collect();
    let long = runs.iter().filter(|one| !one.is_control).count();
    let length = match wanted.time {
        Time::Each(time) => time,
        Time::InAll(time) => time / u32::try_from(long.max(1)).expect("a few"),
    };
    let mut failed = Vec::new();
    for one in runs {
        if !show(one, wanted, length, &workers)? {
            failed.push(one.name);
        }
    }
    match failed.as_slice() {
        [] => Ok(()),
        names => Err(format!("these runs failed: {names:?}")),
    }
}

/// Whether the result is as it has to be.
fn show(one: &Run, wanted: &Wanted, length: Duration, workers: &[Worker]) -> Result<bool, String> {
    let play = Play {
        lingers: one.is_control,
        ..usual_play(wanted.seed)
    };
    let mut setup = (one.start)(&play);
    let mut parts = (one.parts)();
    if !one.is_control {
        parts.extend(workers.iter().cloned().map(Part::Theirs));
    }
    let plan = Plan {
        seed: wanted.seed,
        length: if one.is_control { CONTROL } else { length },
        parts,
        play,
        is_control: one.is_control,
        is_told: wanted.is_told,
    };
    let outcomes = run(&plan, &mut *setup)?;
    let is_right = outcomes.violations.is_empty() != one.is_control;
    let verdict = if is_right { "ok" } else { "WRONG" };
    println!("{verdict}: {}{}", one.name, found(one, &outcomes));
    print!("{outcomes}");
    if wanted.writes {
        let server = setup.servers()[0].version().to_string();
        let cell = cell(&outcomes, plan.length);
        let (title, name) = match one.name.strip_prefix("control: ") {
            Some(name) => (CONTROLS, name),
            None => (SETUPS, one.name),
        };
        page::write(title, name, &server, &cell).map_err(|error| error.to_string())?;
    }
    Ok(is_right)
}

/// What the page says of a run: what came of it, or when a control found two inside.
fn cell(outcomes: &Outcomes, length: Duration) -> String {
    match outcomes.violations.first() {
        Some(first) => format!("{:.1}", first.at as f64 / 1e9),
        None => {
            let (grants, writes) = (outcomes.grants, outcomes.writes);
            format!("{grants}, {writes}, {} s", length.as_secs())
        }
    }
}

fn found(one: &Run, outcomes: &Outcomes) -> String {
    match outcomes.violations.first() {
        Some(first) if one.is_control => {
            format!(": found two inside after {:.1} s", first.at as f64 / 1e9)
        }
        _ => String::new(),
    }
}
