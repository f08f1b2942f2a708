//! When to look at which hold again: at its next renewal or at its deadline, whichever comes first.
//!
//! A hold that is released, or comes onto the agenda again, leaves its old entry where it is. The old entries go when
//! their time has come, and all of them whenever the agenda has grown to twice what counted the last time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock::BootInstant;
use crate::hold::Hold;

/// So few entries are never looked through.
const FEW: usize = 64;

/// Every hold that lives has one entry that counts, no later than its deadline.
#[derive(Default)]
pub(crate) struct Agenda {
    entries: BinaryHeap<Entry>,
    /// How many entries counted when they were last looked through.
    counted: usize,
}

/// When to look at a hold again.
struct Entry {
    at: BootInstant,
    /// How much earlier than that will do, so that many holds share a pipeline.
    slack: Duration,
    number: u64,
    hold: Weak<Hold>,
}

impl Agenda {
    pub(crate) fn add(&mut self, hold: &Weak<Hold>) {
        if self.entries.len() >= FEW.max(2 * self.counted) {
            self.sweep();
        }
        self.entries.extend(Entry::new(hold));
    }

    /// When something is due.
    pub(crate) fn first(&self) -> Option<BootInstant> {
        self.entries.peek().map(|entry| entry.at)
    }

    /// Takes out what is to be renewed now, and lets what is over be over.
    pub(crate) fn due(&mut self) -> Vec<Arc<Hold>> {
        let now = BootInstant::now();
        let mut due = Vec::new();
        while self
            .entries
            .peek()
            .is_some_and(|entry| entry.at <= now + entry.slack)
        {
            let Some(entry) = self.entries.pop() else {
                break;
            };
            let Some(hold) = entry.living() else {
                continue;
            };
            // If not, it was renewed by hand meanwhile, or the deadline has moved.
            let renews = {
                let mut state = hold.state();
                let renews = state.wants_renewal() && state.next_renewal <= now + entry.slack;
                state.in_renewal |= renews;
                renews
            };
            // Nobody knows how long the renewal takes: the deadline is watched meanwhile.
            self.add(&entry.hold);
            if renews {
                due.push(hold);
            }
        }
        due
    }

    /// The holds that are not over.
    pub(crate) fn into_living(mut self) -> Vec<Weak<Hold>> {
        self.sweep();
        self.entries.into_iter().map(|entry| entry.hold).collect()
    }

    fn sweep(&mut self) {
        self.entries.retain(|entry| entry.living().is_some());
        self.counted = self.entries.len();
        self.entries.shrink_to(2 * self.counted);
    }
}

impl Entry {
    /// `None` if the hold is over.
    fn new(hold: &Weak<Hold>) -> Option<Entry> {
        let strong = hold.upgrade()?;
        let mut state = strong.state();
        if state.loss.is_some() {
            return None;
        }
        state.agenda += 1;
        let renews =
            state.wants_renewal() && state.next_renewal < state.deadline && !state.reaches_cap();
        let (at, slack) = if renews {
            (state.next_renewal, state.lease.duration() / 30)
        } else {
            (state.deadline, Duration::ZERO)
        };
        Some(Entry {
            at,
            slack,
            number: state.agenda,
            hold: hold.clone(),
        })
    }

    /// The hold, if it lives, and if this entry is its newest.
    fn living(&self) -> Option<Arc<Hold>> {
        let hold = self.hold.upgrade()?;
        let counts = {
            let state = hold.state();
            state.loss.is_none() && state.agenda == self.number
        };
        counts.then_some(hold)
    }
}

impl Ord for Entry {
    /// The earliest is the greatest: the heap gives out the greatest first.
    fn cmp(&self, other: &Entry) -> Ordering {
        other.at.cmp(&self.at)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.at == other.at
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Loss;
    use crate::renew::tests::hold;

    #[tokio::test]
    async fn holds_that_are_over_do_not_pile_up() {
        let mut agenda = Agenda::default();
        let living: Vec<_> = (0..100).map(hold).collect();
        for hold in &living {
            agenda.add(&Arc::downgrade(hold));
        }
        for token in 0..1000 {
            let released = hold(token);
            agenda.add(&Arc::downgrade(&released));
            released.lose(Loss::Released);
            // Looked at again and again, as a lock that is entered again is.
            agenda.add(&Arc::downgrade(&living[token as usize % living.len()]));
        }
        let entries = agenda.entries.len();
        assert!(entries <= 2 * (living.len() + 1), "{entries} entries");
        let counting = agenda.entries.iter().filter(|it| it.living().is_some());
        assert_eq!(counting.count(), living.len());
    }

    #[tokio::test]
    async fn a_deadline_is_watched_while_a_renewal_is_on_its_way() {
        let hold = hold(1);
        let deadline = {
            let mut state = hold.state();
            state.renewing = 1;
            state.next_renewal = BootInstant::now();
            state.deadline
        };
        let mut agenda = Agenda::default();
        agenda.add(&Arc::downgrade(&hold));
        assert_eq!(agenda.due().len(), 1);
        assert_eq!(agenda.first(), Some(deadline));
        // Not twice at the same time, whatever puts it on the agenda meanwhile.
        agenda.add(&Arc::downgrade(&hold));
        assert_eq!(agenda.due().len(), 0);
        assert_eq!(agenda.first(), Some(deadline));
    }
}
