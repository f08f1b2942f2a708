//! The clients, each in its own process. They do what users do, and record what they believed.

mod blocked;
mod confirm;
mod inside;
mod job;
mod library;
mod mail;
mod other;
mod plain;
mod request;
#[cfg(feature = "peers")]
mod rivals;
mod rounds;
mod stop;
mod task;
mod wire;

use crate::history::{Log, Record, now};

pub(crate) use job::{Confirming, Job, Kind, Marker, PRIMARY, Place};
use stop::Stop;
pub(crate) use wire::Wire;

/// Runs until the parent process ends it.
pub(crate) fn run(job: &Job) -> Result<(), String> {
    let log = Log::create(&job.history).map_err(|error| error.to_string())?;
    let stop = Stop::watch_stdin();
    match job.kind {
        Kind::Blocked => rounds::run(job, &log, &stop, blocked::Blocked::new),
        Kind::Mail => rounds::run(job, &log, &stop, mail::Mail::new),
        Kind::Library => library::run(job, &log, &stop)?,
        Kind::Plain => other::run::<plain::Plain>(job, &log, &stop),
        #[cfg(feature = "peers")]
        Kind::Rslock => other::run::<rivals::Rslock>(job, &log, &stop),
        #[cfg(feature = "peers")]
        Kind::Redlock => other::run::<rivals::Redlock>(job, &log, &stop),
    }
    log.write(&Record::Closed { at: now() });
    Ok(())
}
