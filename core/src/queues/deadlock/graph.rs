//! The graph of waits: the holders and waiters that block an owner in one queue.

use super::super::Queues;
use super::super::keys::KeyNo;
use super::super::position::Position;
use super::super::waiter::Waiter;
use super::super::waiters::{Name, Stand, Waiters};
use super::{Follow, MOST_STEPS};
use crate::admission::{self, compatible};
use crate::lock::Lock;
use crate::owner::OwnerRef;
use crate::types::{Instant, Mode};

/// Whom a request waits for at its key, at once or through others at this key.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    /// All that stand ahead of this position.
    pub(super) ahead_of: Position,
    pub(super) holders: ReachedHolders,
}

/// The holders that a request waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ReachedHolders {
    None,
    /// The only one that reads, if there is only one.
    Only,
    All,
}

/// The graph at one moment, and how many steps were taken in it.
pub(super) struct Graph<'a> {
    pub(super) queues: &'a Queues,
    pub(super) now: Instant,
    pub(super) follow: Follow,
    /// By all searches for one request.
    pub(super) taken: usize,
}

impl<'a> Graph<'a> {
    pub(super) fn waiters(&self) -> &'a Waiters {
        &self.queues.waiters
    }

    pub(super) fn held(&self, key: KeyNo) -> &'a Lock {
        self.queues.keys.held(key)
    }

    pub(super) fn holds(&self, key: KeyNo, owner: OwnerRef<'_>) -> bool {
        self.held(key).live_hold(owner, self.now).is_some()
    }

    pub(super) fn request(&self, stand: &Stand) -> Option<&'a Waiter> {
        let waiting = self.waiters().at(stand.position)?;
        Some(&waiting.waiter)
    }

    /// Takes a step.
    pub(super) fn spend(&mut self) {
        self.taken += 1;
    }

    pub(super) fn is_spent(&self) -> bool {
        self.taken >= MOST_STEPS
    }

    /// The holders and places in the queue that block the owner at this key.
    pub(super) fn reach_of(&mut self, stand: &Stand, follow: Follow) -> Reach {
        if stand.writes {
            let (ahead_of, holders) = (stand.position, ReachedHolders::All);
            return Reach { ahead_of, holders };
        }
        self.spend();
        // Behind a writer it waits for that one, and for all that a writer in its place waits for.
        let writer = self
            .waiters()
            .last_writer_before(stand.key, stand.position)
            .max(match follow {
                Follow::Every => self
                    .waiters()
                    .last_several_before(stand.key, stand.position),
                Follow::Firm => None,
            });
        if let Some(writer) = writer {
            let (ahead_of, holders) = (writer.behind(), ReachedHolders::All);
            return Reach { ahead_of, holders };
        }
        let held = self.held(stand.key);
        let holders = match held.mode(self.now) {
            Some(mode) if !compatible(mode, Mode::Read) => ReachedHolders::All,
            _ if self.waits_for_only_reader(stand, held) => ReachedHolders::Only,
            _ => ReachedHolders::None,
        };
        let ahead_of = Position::FIRST;
        Reach { ahead_of, holders }
    }

    /// Whether a reader, which stands behind no writer, waits for its limit, or stands behind one that does: so it waits for the only owner
    /// that reads, if there is only one.
    fn waits_for_only_reader(&mut self, stand: &Stand, held: &Lock) -> bool {
        let Some((reader, reads)) = held.only_reader(self.now) else {
            return false;
        };
        let waiters = self.waiters();
        for (position, waiting) in waiters.line(stand.key, Position::FIRST, stand.position.behind())
        {
            self.spend();
            let waiter = &waiting.waiter;
            // The reader itself waits only for the end of a grace, and a later request of an owner never for its limit.
            if admission::waits_for_limit(&waiter.terms, u64::from(reads)) && waiter.owner != reader
            {
                let name = waiters.name(waiter.owner.as_ref());
                let stands = waiters.stand(stand.key, name);
                if stands.is_some_and(|stands| stands.position == position) {
                    return true;
                }
            }
            if self.is_spent() {
                return false;
            }
        }
        false
    }

    /// Whether the waits behind the owner that stands there are followed.
    pub(super) fn counts(&self, stand: &Stand, follow: Follow) -> bool {
        if follow == Follow::Every || !self.waiters().any_several() {
            return true;
        }
        let waiting = self.waiters().at(stand.position);
        waiting.is_none_or(|waiting| !waiting.is_for_several())
    }

    /// The task's first stand at the key behind which waits are followed.
    pub(super) fn first_of_task(&mut self, task: u64, key: KeyNo, follow: Follow) -> Option<Stand> {
        let stands = self.waiters().stands(task, key, None);
        let mut first: Option<Stand> = None;
        for (nth, stand) in stands.take_while(|stand| stand.key == key).enumerate() {
            if self.is_spent() {
                break;
            }
            // The caller has taken the first step.
            if nth > 0 {
                self.spend();
            }
            let is_ahead = first.is_none_or(|first| stand.position < first.position);
            if is_ahead && self.counts(&stand, follow) {
                first = Some(stand);
            }
        }
        first
    }

    /// Whether the owner waits for the task of `to`, and not only for requests for several keys; `is_own`: for the search's own `owner` at its
    /// own key. Once no step is left, the answer is of no use.
    pub(super) fn is_firm(
        &mut self,
        stand: &Stand,
        to: Name,
        owner: OwnerRef<'_>,
        is_own: bool,
    ) -> bool {
        let waiter = self.request(stand).map(|request| request.owner.as_ref());
        let (held, reach) = (self.held(stand.key), self.reach_of(stand, Follow::Firm));
        let holds = match reach.holders {
            ReachedHolders::None => false,
            _ if is_own => self.holds(stand.key, owner),
            _ => held.is_held_for_task(owner, waiter, self.now),
        };
        let first = match is_own {
            true => {
                let own = self.waiters().stand(stand.key, to);
                own.filter(|own| self.counts(own, Follow::Firm))
            }
            false => self.first_of_task(to.task, stand.key, Follow::Firm),
        };
        let stands = first.is_some_and(|first| first.position < reach.ahead_of);
        holds || stands
    }
}
