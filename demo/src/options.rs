//! The command line: of the show, and of the processes that it starts.

use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

pub(crate) const USAGE: &str = "\
mortise-demo: ten processes that want one lock, on a server of their own

  mortise-demo [--short] [--svg FILE]

  --short     without time for reading: some ten seconds
  --svg FILE  also write what was shown as an animated picture
";

/// The role of this process.
pub(crate) enum Part {
    /// It shows the ten.
    Show(Settings),
    /// It is one of the ten.
    Actor(Actor),
    /// It only prints the usage.
    Help,
}

/// The settings of the show.
pub(crate) struct Settings {
    pub(crate) pace: Pace,
    /// The file for the picture.
    pub(crate) svg: Option<PathBuf>,
}

/// The speed of the show.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// How long a lock is held.
    pub(crate) work: Duration,
    /// The lease of a lock.
    pub(crate) lease: Duration,
    /// The minimum time for which a line of the narrator stays.
    pub(crate) reading: Duration,
    /// How many tickets are sold between one act and the next.
    pub(crate) tickets: u64,
}

impl Pace {
    const WATCHED: Pace = Pace {
        work: Duration::from_millis(450),
        lease: Duration::from_secs(3),
        reading: Duration::from_millis(4500),
        tickets: 10,
    };
    const SHORT: Pace = Pace {
        work: Duration::from_millis(100),
        lease: Duration::from_millis(1500),
        reading: Duration::ZERO,
        tickets: 5,
    };
}

/// One of ten.
pub(crate) struct Actor {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) work: Duration,
    pub(crate) lease: Duration,
}

impl Actor {
    /// Its command line.
    pub(crate) fn args(&self) -> [String; 5] {
        [
            "--actor".to_owned(),
            self.name.clone(),
            self.url.clone(),
            self.work.as_millis().to_string(),
            self.lease.as_millis().to_string(),
        ]
    }
}

pub(crate) fn read() -> Result<Part, String> {
    parse(Parser::from_env()).map_err(|error| error.to_string())
}

fn parse(mut parser: Parser) -> Result<Part, lexopt::Error> {
    let mut settings = Settings {
        pace: Pace::WATCHED,
        svg: None,
    };
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("short") => settings.pace = Pace::SHORT,
            Arg::Long("svg") => settings.svg = Some(parser.value()?.into()),
            Arg::Long("actor") => return actor(&mut parser).map(Part::Actor),
            Arg::Long("help") | Arg::Short('h') => return Ok(Part::Help),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Part::Show(settings))
}

fn actor(parser: &mut Parser) -> Result<Actor, lexopt::Error> {
    Ok(Actor {
        name: parser.value()?.string()?,
        url: parser.value()?.string()?,
        work: Duration::from_millis(parser.value()?.parse()?),
        lease: Duration::from_millis(parser.value()?.parse()?),
    })
}
