//! Whether one more wait would close a cycle of waits.
//!
//! A request waits for every other owner that holds incompatibly, and for every other owner that
//! stands ahead of it with an incompatible request. The owners of one task count as one: what one
//! of them waits for, the task waits for. At one key this is different: a task that waits for another one there waits for what that one
//! owner waits for, and for what its task waits for elsewhere. The task may have other names at the key, and a request that waits for those
//! simply waits.
//!
//! A request that waits for its limit waits for the owner that reads, if there is only one; if several read, it waits for some of them, and
//! the search does not follow that wait. A request behind it waits for the same owner, but not for what its own owner waits for elsewhere.
//!
//! Mostly nobody waits for the task at all, which a check of its holds and places shows.
//! Otherwise the search walks from the request that is about to wait, breadth first, to a shortest
//! cycle. These observations keep it small.
//!
//! * A task that waits in a single queue waits only for the holders there and those ahead of it. So a walk
//!   along a queue needs to stop only at tasks that wait in several: a million waiters of
//!   one lock cost one check of the lock.
//! * A reader waits for the last writer ahead of it and, through that writer, for all that a
//!   writer in the same place waits for. So its end describes a whole walk, and no stretch of a queue
//!   is walked twice.
//! * A holder matters only if its task waits somewhere itself, and a waiter in the queue of a
//!   lock does not hold it. A lock with very many readers records which of them wait (`../crowds.rs`); with few,
//!   the search checks each reader.
//!
//! It gives up when it has reached a thousand tasks, or taken thousands of steps to them and to readers of locks with few.
//! Then it begins again from the other end: it finds the tasks that the asking one blocks, which are mostly few, and searches only among
//! them, whatever else is in the way.
//!
//! An owner's later requests in one queue stand, for this purpose, where its first one does: they are decided when that is granted, so they
//! wait for nobody in between.

mod asking;
mod behind;
mod blocked;
mod budget;
mod by_slot;
mod search;

pub use asking::Wait;
pub use behind::WaitPlan;
pub(super) use budget::MOST_TASKS;

use asking::Asking;
use blocked::Blocked;
use budget::Budget;
use search::{Exits, START, Search, Step, Target, Walker};

use super::Queues;
use crate::key::KeyId;
use crate::observed::Observed;
use crate::types::Instant;

impl Queues {
    /// The keys of a cycle that `wait` closes, each once, from its own key on; `None` if it closes none, or the search gave up at both
    /// ends.
    ///
    /// `held` is who holds the wait's own key; the queues know the holders of other keys themselves.
    ///
    /// If the owner waits at the same key already, or was moved to the head, `wait` stands ahead of others, which then wait for it: so a
    /// cycle counts, too, that reaches it from another wait of its task.
    pub fn find_cycle(&self, wait: &Wait, held: &Observed, now: Instant) -> Option<Vec<KeyId>> {
        self.find_cycle_and_cost(wait, held, now).0
    }

    /// The same as [`Self::find_cycle`], and how many steps it took.
    pub fn find_cycle_and_cost(
        &self,
        wait: &Wait,
        held: &Observed,
        now: Instant,
    ) -> (Option<Vec<KeyId>>, usize) {
        let (found, steps) = self.search(wait, held, now);
        (found.map(|found| found.keys), steps)
    }

    /// The same, but follows no place behind a request for several keys.
    fn find_deadlock(&self, wait: &Wait, held: &Observed, now: Instant) -> (Option<Cycle>, usize) {
        self.search_for(&[Follow::OnlyReal], wait, held, now)
    }

    fn search(&self, wait: &Wait, held: &Observed, now: Instant) -> (Option<Cycle>, usize) {
        // A deadlock comes first: no move ends it.
        let kinds: &[Follow] = match self.bundles.is_empty() {
            true => &[Follow::All],
            false => &[Follow::OnlyReal, Follow::All],
        };
        self.search_for(kinds, wait, held, now)
    }

    /// The first cycle of one of these kinds, and how many steps it took to find it.
    fn search_for(
        &self,
        kinds: &[Follow],
        wait: &Wait,
        held: &Observed,
        now: Instant,
    ) -> (Option<Cycle>, usize) {
        let asking = Asking::new(self, wait, held, now);
        if !asking.is_waited_for() {
            return (None, 0);
        }
        let (mut blocked, mut steps) = (None, 0);
        for kind in kinds {
            let mut outcome = Outcome::of(&asking, None, *kind);
            steps += outcome.steps;
            if outcome.gave_up {
                let blocked = blocked.get_or_insert_with(|| {
                    let blocked = Blocked::by(&asking);
                    steps += blocked.steps();
                    blocked
                });
                outcome = Outcome::of(&asking, Some(blocked), *kind);
                steps += outcome.steps;
            }
            if outcome.cycle.is_some() {
                return (outcome.cycle, steps);
            }
        }
        (None, steps)
    }
}

/// A cycle that a wait closes.
struct Cycle {
    keys: Vec<KeyId>,
    /// The slots of requests in it that wait only because they stand behind a request for several keys, with [`NIL`](crate::tree::NIL) for
    /// the one that is about to wait.
    behind: Vec<u32>,
    /// Each with the task that it leads to.
    steps: Vec<(Step, u32)>,
}

impl Cycle {
    fn of(search: &Search<'_>, asking: &Asking<'_>) -> Option<Self> {
        let steps = search.steps()?;
        let behind = match asking.queues.bundles.is_empty() {
            true => Vec::new(),
            false => {
                let (steps, mut budget) = (steps.iter(), Budget::forward());
                let behind =
                    steps.filter(|(step, to)| asking.is_behind_several(*step, *to, &mut budget));
                behind.map(|(step, _)| step.slot).collect()
            }
        };
        Some(Self {
            keys: search.path(&steps),
            behind,
            steps,
        })
    }
}

/// Which waits a search follows.
#[derive(Clone, Copy)]
enum Follow {
    All,
    /// Not those at a place behind a request for several keys: a cycle without them is a deadlock.
    OnlyReal,
}

/// The result of a search.
struct Outcome {
    cycle: Option<Cycle>,
    steps: usize,
    /// There may be a cycle all the same.
    gave_up: bool,
}

impl Outcome {
    /// Of a search that reaches no tasks but `among`.
    fn of(asking: &Asking<'_>, among: Option<&Blocked<'_>>, follow: Follow) -> Self {
        let (wait, now) = (asking.wait, asking.now);
        let begin = |target: Target| match follow {
            Follow::All => Search::new(asking, target, among),
            Follow::OnlyReal => Search::new(asking, target, among).only_real(),
        };
        let mut search = begin(Target::Task);
        // Re-entry only waits for the end of a grace.
        if wait.is_upgrade() || !asking.held.holds(wait.owner.as_ref(), now) {
            let walker = Walker {
                task: START,
                owner: wait.owner.as_ref(),
                slot: asking.slot,
            };
            search.walk(walker, asking.key, wait.terms.mode(), asking.position);
            search.run();
        }
        let (mut steps, mut gave_up) = (search.cost(), search.gave_up());
        if search.closed.is_none() && asking.is_ahead_of_others() {
            search = begin(Target::Owner);
            search.walk_from(START, asking.task, Exits::Except(asking.key));
            search.run();
            steps += search.cost();
            gave_up |= search.gave_up();
        }
        Self {
            cycle: Cycle::of(&search, asking),
            steps,
            gave_up: gave_up && search.closed.is_none(),
        }
    }
}
