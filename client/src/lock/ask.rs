//! What one attempt to take a lock asks a server for.

use std::time::Duration;

use crate::wire::command::Acquire;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) acquire: Acquire,
    /// In milliseconds, 0 without limit; `None`: it does not wait.
    pub(crate) wait: Option<u64>,
    pub(crate) max_hold: Option<Duration>,
    /// How long the lock stays taken after its grant, however early it is given back.
    pub(crate) at_least: Duration,
    pub(crate) renews: bool,
    /// One server of several is asked: what it grants is a part of a hold, which reports its own end.
    pub(crate) is_part: bool,
}
