//! Whether one more wait would close a cycle of waits.
//!
//! **The graph.** A node is an owner at a key: somebody waits there for that owner. From it lead the owner's own requests at that key, and all
//! requests of its task at other keys, because the owners of one task count as one. A request leads to the nodes of those for whom it waits:
//!
//! * every other owner that holds incompatibly,
//! * every other owner that stands ahead of it with an incompatible request or with a request for several keys,
//! * if it waits for its limit: the owner that reads, if there is only one. (If several read, it waits for *some* of them, and nothing leads on.)
//!   A reader behind such a request waits for the same owner, but not for the request.
//!
//! ```text
//!   lock x  [ A reads ]   B writes ──► C reads      C waits for B, B waits for A, and the task of A waits for C:
//!   lock y  [ C ]         A##2                      C's request at x would close a cycle.
//! ```
//!
//! A wait closes a cycle if a chain leads from it, through another task, back to its own task: to any owner of it at another key, or to its own owner
//! at its own key. (A task's own holds and requests at one key are no deadlock.) A wait that stands ahead of others, because it was moved there or is found in
//! the queue, closes one also if a chain leads from another wait of its task to its own owner at its own key.
//!
//! **The search** (`search.rs`) follows the graph from the wait on, breadth first, and only reads. Four facts keep it small:
//!
//! * At one key all waits are nested. A writer waits for all holders and for all ahead. A reader waits for the last writer ahead of it, if there is one, and so
//!   for all that a writer in the same place waits for. So a place in the queue and a class of holders say whom a request waits for, at once or through others at the same key,
//!   and a request that reaches no further than an earlier one need not be followed.
//! * From a queue only tasks lead on that wait at other keys, too. These are marked, so that a million others cost nothing.
//! * A holder whose task waits nowhere leads nowhere. To find that out costs a step.
//! * A task that was reached at two keys has been reached everywhere: at the first one it leads to its waits at all other keys, and at the second one to those at the first.
//!
//! **Why it ends.** Each task is reached at most twice, what a key leads to only grows, and each look at a waiter, a holder or a key takes one of
//! [`MOST_STEPS`](budget::MOST_STEPS). Long queues and many readers are followed a page at a time, in turn with all else, so that a crowd hides no small cycle elsewhere.
//!
//! **Why what it reports is a cycle.** Each task is stored with the step that led to it: a request of a task that was reached before, and its key. A step is an edge of the graph,
//! or several at one key. So from the step that closes the cycle the steps lead back to the wait.
//!
//! An owner's later requests in one queue stand, for this purpose, where its first one does: they are decided when that is granted, so they
//! wait for nobody in between.
//!
//! **Requests for several keys** hold nothing while they wait. So a wait for one that stands ahead is not *firm*: it is given up before it makes a deadlock
//! (`moves.rs`). A first search follows firm waits only; a cycle that it finds is a deadlock. A second one follows all.

mod budget;
mod graph;
mod moves;
mod search;
mod wait;

pub use moves::WaitPlan;
pub use wait::Wait;

use budget::Budget;
use graph::{Start, Step};
use search::Search;
use wait::Follow;

use super::Queues;
use crate::key::KeyId;
use crate::observed::Observed;
use crate::types::Instant;

/// A cycle that a wait closes.
struct Cycle {
    keys: Vec<KeyId>,
    /// From the wait round to it, each with the task that it leads to.
    steps: Vec<(Step, u32)>,
    /// The slots of requests in it whose wait is not firm, with [`NIL`](crate::tree::NIL) for the one that is about to wait.
    yielding: Vec<u32>,
}

impl Queues {
    /// The keys of a cycle that `wait` closes, each once, from its own key on; `None` if it closes none, or the search gave up. And how many steps the search
    /// took.
    ///
    /// `held` is who holds the wait's own key; the queues know the holders of other keys themselves.
    pub fn find_cycle(
        &self,
        wait: &Wait,
        held: &Observed,
        now: Instant,
    ) -> (Option<Vec<KeyId>>, usize) {
        let budget = Budget::new();
        let found = self.search(&Start::new(self, wait, held, now, &budget));
        (found.map(|found| found.keys), budget.steps())
    }

    fn search(&self, start: &Start<'_>) -> Option<Cycle> {
        // No move ends a deadlock, so it comes first.
        let deadlock = self.search_for(Follow::Firm, start);
        if deadlock.is_some() || self.bundles.is_empty() {
            return deadlock;
        }
        self.search_for(Follow::Every, start)
    }

    fn search_for(&self, follow: Follow, start: &Start<'_>) -> Option<Cycle> {
        if !start.is_waited_for() {
            return None;
        }
        let mut search = Search::new(start, follow);
        search.run();
        let steps = search.steps()?;
        let yields = |step: Step, to: u32| follow == Follow::Every && !start.is_firm(step, to);
        let yielding = steps.iter().filter(|(step, to)| yields(*step, *to));
        Some(Cycle {
            keys: start.keys_of(&steps),
            yielding: yielding.map(|(step, _)| step.slot).collect(),
            steps,
        })
    }
}
