//! The holds of a client, by when something is due.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::net::schedule::{Due, Schedule};
use crate::value::{BootInstant, Error};

/// What the background task takes up when it is due.
pub(super) trait Scheduled: Send + Sync {
    /// The renewal to wait for, if one is due.
    fn take_up(self: Arc<Self>) -> Option<BoxFuture<'static, Result<(), Error>>>;

    /// The client is closed.
    fn close(&self);
}

/// The holds of a client, by when something is due.
pub(super) struct Holds {
    pub(super) schedule: Schedule<Arc<dyn Scheduled>>,
    /// When the background task goes on; `None` if there is none.
    pub(super) goes_on: Option<BootInstant>,
    pub(super) is_closed: bool,
}

impl Default for Holds {
    fn default() -> Holds {
        Holds {
            schedule: Schedule::new(),
            goes_on: None,
            is_closed: false,
        }
    }
}

impl Holds {
    /// The client is closed: the holds that end with it. None is added from now on.
    pub(super) fn close(&mut self) -> Vec<Arc<dyn Scheduled>> {
        self.is_closed = true;
        self.schedule.values().cloned().collect()
    }

    pub(super) fn remove(&mut self, due: Due) -> Option<Arc<dyn Scheduled>> {
        self.schedule.remove(due)
    }

    /// The next that is due by now; otherwise when the background task goes on, if there is anything to go on with.
    pub(super) fn next(&mut self) -> Result<Arc<dyn Scheduled>, Option<BootInstant>> {
        self.goes_on = self.schedule.first();
        match self.goes_on {
            Some(first) if first <= BootInstant::now() => {
                Ok(self.schedule.pop_first().expect("there is a first"))
            }
            other => Err(other),
        }
    }
}
