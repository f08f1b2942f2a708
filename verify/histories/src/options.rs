//! The command line of the program, and of the clients that it starts.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lexopt::{Arg, Parser, ValueExt};

use crate::client::Job;
use crate::haul::Haul;

pub(crate) const USAGE: &str = "\
mortise-proof: clients use locks while everything fails, and their histories are judged

  mortise-proof [--minutes N | --seconds N] [--seed N] [--languages NAME,NAME] [--told] [--write] [NAME...]

  mortise-proof haul [--minutes N] [--rate N] [NAME...]

  --minutes N  how long all runs that must find nothing are disturbed together: 30
  --seconds N  how long each of them is
  --seed N     what is done, and in which order; as of an earlier run
  --languages  whose libraries take part where there is one server to connect to: all that are there, or none
  --told       say what is done when it is done
  --write      put what comes of it into docs/proof.md
  haul         take and release locks at an even rate for so many minutes: 60
  --rate N     how many a minute: 1000000
  NAME         some runs or journeys only: those whose names begin so
";

/// The role of this process.
pub(crate) enum Part {
    /// A client.
    Work(Box<Job>),
    Histories(Wanted),
    Haul(Haul),
    /// It only prints its usage.
    Help,
}

/// How long the program disturbs clients and servers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Time {
    /// In all runs together.
    InAll(Duration),
    /// In each run.
    Each(Duration),
}

/// Which runs, and with which options.
pub(crate) struct Wanted {
    pub(crate) time: Time,
    pub(crate) seed: u64,
    pub(crate) is_told: bool,
    pub(crate) writes: bool,
    /// `all`, `none`, or names.
    pub(crate) languages: String,
    /// The beginnings of names, or none for all.
    pub(crate) names: Vec<String>,
}

pub(crate) fn read() -> Result<Part, String> {
    parse(Parser::from_env()).map_err(|error| error.to_string())
}

fn parse(mut parser: Parser) -> Result<Part, lexopt::Error> {
    let mut wanted = Wanted {
        time: Time::InAll(Duration::from_secs(30 * 60)),
        seed: some_seed(),
        languages: "all".to_owned(),
        is_told: false,
        writes: false,
        names: Vec::new(),
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("minutes") => {
                let minutes: u64 = parser.value()?.parse()?;
                wanted.time = Time::InAll(Duration::from_secs(minutes * 60));
            }
            Arg::Long("seconds") => {
                wanted.time = Time::Each(Duration::from_secs(parser.value()?.parse()?));
            }
            Arg::Long("seed") => wanted.seed = parser.value()?.parse()?,
            Arg::Long("languages") => wanted.languages = parser.value()?.parse()?,
            Arg::Long("told") => wanted.is_told = true,
            Arg::Long("write") => wanted.writes = true,
            Arg::Long("help") | Arg::Short('h') => return Ok(Part::Help),
            Arg::Value(word) if word == "work" => {
                let job: String = parser.value()?.parse()?;
                return serde_json::from_str(&job)
                    .map(|job| Part::Work(Box::new(job)))
                    .map_err(|error| error.to_string().into());
            }
            Arg::Value(word) if word == "haul" => return haul(parser),
            Arg::Value(name) => wanted.names.push(name.parse()?),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Part::Histories(wanted))
}

fn haul(mut parser: Parser) -> Result<Part, lexopt::Error> {
    let mut haul = Haul {
        length: Duration::from_secs(60 * 60),
        rate: 1_000_000,
        names: Vec::new(),
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("minutes") => {
                let minutes: f64 = parser.value()?.parse()?;
                haul.length = Duration::from_secs_f64(minutes * 60.0);
            }
            Arg::Long("rate") => haul.rate = parser.value()?.parse()?,
            Arg::Value(name) => haul.names.push(name.parse()?),
            _ => return Err(arg.unexpected()),
        }
    }
    Ok(Part::Haul(haul))
}

fn some_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
