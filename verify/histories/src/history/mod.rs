//! What clients believed, and when, as lines of JSON. All are on one host, by one clock.

mod belief;
mod clock;
mod ledger;
mod log;
mod notes;
mod record;

pub(crate) use belief::{Belief, History};
pub(crate) use clock::now;
pub(crate) use log::{Log, read_all};
pub(crate) use record::{
    Break, Granted, Mode, Mutual, Outcome, Record, Seen, SeenHold, SeenRequest, Way, Write,
};

#[cfg(test)]
pub(crate) use record::{Answer, Ask, Mark};
