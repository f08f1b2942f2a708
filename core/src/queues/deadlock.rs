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
//! at its own key. (A task's own holds and requests at one key are no deadlock.) A wait ahead of which nobody is new, because it was moved there or its
//! owner waits there already, closes one also if a chain leads from another wait of its task to its own owner at its own key.
//!
//! **The search** (`search.rs`, in the graph of `graph.rs`) starts once the request stands in its queues. It follows the graph forward, breadth first, and only reads.
//! It never opens a key: for every key with waiters the queues keep what the last settle saw of the lock. Mostly nobody waits for the task, which costs
//! two look-ups to find out: it holds no key where others wait, and stands ahead of nobody. Three facts keep the search small:
//!
//! * At one key all waits are nested. A writer waits for all holders and for all ahead. A reader waits for the last writer ahead of it, if there is one, and so
//!   for all that a writer in the same place waits for. So a place in the queue and a class of holders say whom a request waits for, at once or through others at the same key,
//!   and a request that reaches no further than an earlier one need not be followed.
//! * From a queue only tasks lead on that wait at other keys, too. There is an index of these, so that a million others cost nothing.
//! * All requests of an owner in one queue count as standing where its first one does: when that is granted, they are decided.
//!
//! **Why it ends.** Each owner at a key is followed once, what a key leads to only grows, and each look at a waiter, a holder or a key takes one of
//! [`MOST_STEPS`]. Long queues and many readers are followed a page at a time, in turn with all else, so that a crowd hides no small cycle elsewhere.
//! A ring of a thousand tasks that hold a lock and wait at a key takes two thousand steps.
//!
//! **Why what it reports is a cycle.** Each owner that is followed is stored with the one whose wait led to it: that is an edge of the graph,
//! or several at one key. So from the wait that closes the cycle these lead back to the start.
//!
//! **Requests for several keys** hold nothing while they wait. So a wait for one that stands ahead is not *firm*: it is given up before it makes a deadlock
//! (`moves.rs`). A first search follows firm waits only; a cycle that it finds is a deadlock. A second one follows all.

mod graph;
mod moves;
mod search;

pub use moves::{Deadlock, Moves};

use super::keys::KeyNo;
use super::position::{Position, WaiterId};
use super::waiters::Name;
use crate::key::KeyId;
use crate::owner::Owner;

/// How many steps all searches for one request take at most. One step looks at one waiter, holder or key.
const MOST_STEPS: usize = 4_000;

/// Which waits a search follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follow {
    Every,
    /// Not those for a request for several keys that stands ahead.
    Firm,
}

/// What a search starts from: an owner that waits at a key, or has come to hold it.
#[derive(Clone, Debug)]
struct Start {
    key: KeyNo,
    owner: Owner,
    name: Name,
    /// Its request, unless it has come to hold.
    request: Option<WaiterId>,
    /// The request is new, and the only one of its owner there: nobody waits for it yet.
    is_new: bool,
}

/// A wait in a cycle.
#[derive(Debug)]
struct Link {
    /// The request that waits.
    id: WaiterId,
    key: KeyNo,
    position: Position,
    /// The task that it waits for.
    to: u64,
    /// It waits only because it stands behind a request for several keys.
    yields: bool,
}

/// A cycle that a wait closes.
#[derive(Debug)]
struct Cycle {
    /// Each once, from the wait's own key on.
    keys: Vec<KeyId>,
    links: Vec<Link>,
}
