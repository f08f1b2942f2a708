//! The holds of a client, by when something is due.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::net::schedule::Schedule;
use crate::value::{BootInstant, Error};

/// A hold, for the background task.
pub(super) trait Scheduled: Send + Sync {
    /// Something is due: its end, or a renewal, whose answer is to be awaited.
    fn on_due(self: Arc<Self>) -> Option<BoxFuture<'static, Result<(), Error>>>;

    /// The client is closed.
    fn close(&self);
}

/// What the background task does next.
pub(super) enum Next {
    Due(Arc<dyn Scheduled>),
    SleepUntil(BootInstant),
    /// There are no holds.
    End,
}

/// The holds of a client, by when something is due.
pub(super) struct Holds {
    pub(super) schedule: Schedule<Arc<dyn Scheduled>>,
    /// When the background task wakes; `None` while there is no such task.
    pub(super) wakes_at: Option<BootInstant>,
    pub(super) is_closed: bool,
}

impl Default for Holds {
    fn default() -> Holds {
        Holds {
            schedule: Schedule::new(),
            wakes_at: None,
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

    /// What the background task does next. If that is to end, the next hold starts another one.
    pub(super) fn next(&mut self) -> Next {
        self.wakes_at = self.schedule.first();
        match self.wakes_at {
            Some(first) if first > BootInstant::now() => Next::SleepUntil(first),
            _ => self.schedule.pop_first().map_or(Next::End, Next::Due),
        }
    }
}
