//! The holds of a client, by when something is due.

use std::sync::{Arc, Weak};

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
    /// What the background task took out of the schedule last. It may put it back.
    in_hand: Option<Weak<dyn Scheduled>>,
    /// When the background task wakes; `None` while there is no such task.
    pub(super) wakes_at: Option<BootInstant>,
    pub(super) is_closed: bool,
}

impl Default for Holds {
    fn default() -> Holds {
        Holds {
            schedule: Schedule::new(),
            in_hand: None,
            wakes_at: None,
            is_closed: false,
        }
    }
}

impl Holds {
    /// The client is closed: the holds that end with it. None is added from now on.
    pub(super) fn close(&mut self) -> Vec<Arc<dyn Scheduled>> {
        self.is_closed = true;
        let in_hand = self.in_hand.take().and_then(|hold| hold.upgrade());
        self.schedule.values().cloned().chain(in_hand).collect()
    }

    /// What the background task does next. If that is to end, the next hold starts another one.
    pub(super) fn next(&mut self) -> Next {
        self.wakes_at = self.schedule.first();
        match self.wakes_at {
            Some(first) if first > BootInstant::now() => Next::SleepUntil(first),
            _ => {
                let due = self.schedule.pop_first();
                self.in_hand = due.as_ref().map(Arc::downgrade);
                due.map_or(Next::End, Next::Due)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Idle;

    impl Scheduled for Idle {
        fn on_due(self: Arc<Self>) -> Option<BoxFuture<'static, Result<(), Error>>> {
            None
        }

        fn close(&self) {}
    }

    #[test]
    fn a_hold_that_the_background_task_has_in_hand_is_closed_with_the_others() {
        let mut holds = Holds::default();
        let now = BootInstant::now();
        for _ in 0..2 {
            holds.schedule.add(now, Arc::new(Idle));
        }
        let Next::Due(in_hand) = holds.next() else {
            panic!("both are due");
        };
        assert_eq!(holds.close().len(), 2);
        drop(in_hand);
    }
}
