//! All runs: those that must find nothing, and the controls, with a protection taken away, that must find two inside.

use std::time::Duration;

use crate::client::{Confirming, Kind, Marker};
use crate::crowd::{Part, Play};
use crate::languages::{self, Worker};
use crate::options::{Time, Wanted};
use crate::page;
use crate::run::{Outcomes, Plan, run, usual, usual_play};
use crate::setup::{
    Alone, Clustered, Failover, OfAlone, OfOperated, Operated, Promotion, Protection, Setup,
    Watched,
};

/// What the first columns of the tables are called.
const SETUPS: &str = "set-up: grants, guarded writes, time";
const CONTROLS: &str = "control";
/// How long a control may search for two inside.
const SEARCH: Duration = Duration::from_secs(120);

/// One run. Its name begins with [`CONTROL`] if it has to find two inside, because a protection is missing.
struct Run {
    name: &'static str,
    start: fn(&Play) -> Box<dyn Setup>,
    parts: fn() -> Vec<Part>,
}

impl Run {
    fn is_control(&self) -> bool {
        self.name.starts_with(CONTROL)
    }
}

const CONTROL: &str = "control: ";
const REPLICATED: OfOperated = OfOperated::replicated();
const REDLOCK: OfAlone = OfAlone::redlock(OfAlone::REDLOCK_GRACE);
/// Clients write PING before WAIT.
const PING: Option<Confirming> = Some(Confirming {
    replicas: 1,
    marker: Marker::Ping,
});

const RUNS: &[Run] = &[
    Run {
        name: "one server, append-only file",
        start: |_| alone(OfAlone::KEPT),
        parts: usual,
    },
    Run {
        name: "one server, no data, a grace",
        start: |_| alone(OfAlone::lost(1_000)),
        parts: usual,
    },
    Run {
        name: "replicas, a grace",
        start: |_| operated(REPLICATED),
        parts: usual,
    },
    Run {
        name: "Sentinel, a grace",
        start: |_| watched(Protection::Whole),
        parts: usual,
    },
    Run {
        name: "cluster, a grace",
        start: |play| clustered(Promotion::Grace, play),
        parts: usual,
    },
    Run {
        name: "Redlock of five, a grace",
        start: |_| alone(REDLOCK),
        parts: libraries,
    },
    Run {
        name: "confirmed, two nodes",
        start: |_| operated(OfOperated::confirmed(2)),
        parts: usual,
    },
    Run {
        name: "confirmed, three nodes",
        start: |_| operated(OfOperated::confirmed(3)),
        parts: usual,
    },
    Run {
        name: "confirmed, Sentinel",
        start: |_| watched(Protection::Confirmed),
        parts: usual,
    },
    Run {
        name: "confirmed, cluster",
        start: |play| clustered(Promotion::Confirmed, play),
        parts: usual,
    },
    Run {
        name: "control: one server, no data, no grace",
        start: |_| alone(OfAlone::lost(0)),
        parts: usual,
    },
    Run {
        name: "control: one server, append-only file, SET NX PX",
        start: |_| alone(OfAlone::UNBROKEN),
        parts: plain,
    },
    Run {
        name: "control: replicas, no grace",
        start: |_| spoiled(|it| it.grace = 0),
        parts: usual,
    },
    Run {
        name: "control: replicas, one too few required",
        start: |_| {
            spoiled(|it| {
                it.min_replicas = 1;
                // A replica stays with the old primary.
                it.failovers = &[Failover::Divided];
            })
        },
        parts: usual,
    },
    Run {
        name: "control: replicas, a lag of a minute allowed",
        start: |_| spoiled(|it| it.max_lag = 60),
        parts: usual,
    },
    Run {
        name: "control: replicas, leases longer than the grace",
        start: |_| {
            spoiled(|it| {
                it.grace = 2_000;
                it.lease = 5 * it.grace;
                // This one loses most.
                it.failovers = &[Failover::Late];
            })
        },
        parts: usual,
    },
    Run {
        name: "control: replicas, a grace, SET NX PX",
        start: |_| operated(REPLICATED),
        parts: plain,
    },
    Run {
        name: "control: Sentinel, no grace",
        start: |_| watched(Protection::NoGrace),
        parts: usual,
    },
    Run {
        name: "control: Sentinel, no replicas required",
        start: |_| watched(Protection::NoReplicas),
        parts: usual,
    },
    Run {
        name: "control: cluster, no grace",
        start: |play| clustered(Promotion::Nothing, play),
        parts: usual,
    },
    Run {
        name: "control: Redlock of five, no grace",
        start: |_| alone(OfAlone::redlock(0)),
        parts: libraries,
    },
    Run {
        name: "control: Redlock of five, a grace, by SET NX PX",
        start: |_| alone(REDLOCK),
        parts: plain,
    },
    Run {
        name: "control: confirmed, no WAIT",
        start: |_| operated(OfOperated::unconfirmed(None)),
        parts: plain_commands,
    },
    Run {
        name: "control: confirmed, PING in place of RENEW",
        start: |_| operated(OfOperated::unconfirmed(PING)),
        parts: plain_commands,
    },
    Run {
        name: "control: confirmed, one replica of two",
        start: |_| operated(OfOperated::confirmed_by_one()),
        parts: plain_commands,
    },
    Run {
        name: "control: confirmed, no grace after a start",
        start: |_| operated(OfOperated::confirmed_without_grace()),
        parts: plain_commands,
    },
    #[cfg(feature = "peers")]
    Run {
        name: "control: one server, append-only file, rslock",
        start: |_| alone(OfAlone::UNBROKEN),
        parts: || alike(Kind::Rslock),
    },
    #[cfg(feature = "peers")]
    Run {
        name: "control: one server, append-only file, redlock",
        start: |_| alone(OfAlone::UNBROKEN),
        parts: || alike(Kind::Redlock),
    },
    #[cfg(feature = "peers")]
    Run {
        name: "control: Redlock of five, a grace, by rslock",
        start: |_| alone(REDLOCK),
        parts: || alike(Kind::Rslock),
    },
    #[cfg(feature = "peers")]
    Run {
        name: "control: Redlock of five, a grace, by redlock",
        start: |_| alone(REDLOCK),
        parts: || alike(Kind::Redlock),
    },
];

fn alone(settings: OfAlone) -> Box<dyn Setup> {
    Box::new(Alone::start(settings))
}

fn operated(settings: OfOperated) -> Box<dyn Setup> {
    Box::new(Operated::start(settings))
}

/// With a wrong setting. The operator always wants writes at once.
fn spoiled(spoil: fn(&mut OfOperated)) -> Box<dyn Setup> {
    let mut settings = REPLICATED;
    settings.is_hasty = true;
    spoil(&mut settings);
    operated(settings)
}

fn watched(protection: Protection) -> Box<dyn Setup> {
    Box::new(Watched::start(protection))
}

fn clustered(promotion: Promotion, play: &Play) -> Box<dyn Setup> {
    Box::new(Clustered::start(promotion, &play.keys()))
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
    let long = runs.iter().filter(|one| !one.is_control()).count();
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
        lingers: one.is_control(),
        ..usual_play(wanted.seed)
    };
    let mut setup = (one.start)(&play);
    let mut parts = (one.parts)();
    if !one.is_control() {
        parts.extend(workers.iter().cloned().map(Part::Theirs));
    }
    let plan = Plan {
        seed: wanted.seed,
        length: if one.is_control() { SEARCH } else { length },
        parts,
        play,
        is_control: one.is_control(),
        is_told: wanted.is_told,
    };
    let outcomes = run(&plan, &mut *setup)?;
    let is_right = outcomes.violations.is_empty() != one.is_control();
    let verdict = if is_right { "ok" } else { "WRONG" };
    println!("{verdict}: {}{}", one.name, found(one, &outcomes));
    print!("{outcomes}");
    if wanted.writes {
        let server = setup.servers()[0].version().to_string();
        let cell = cell(&outcomes, plan.length);
        let (title, name) = match one.name.strip_prefix(CONTROL) {
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
        Some(first) if one.is_control() => {
            format!(": found two inside after {:.1} s", first.at as f64 / 1e9)
        }
        _ => String::new(),
    }
}
