//! The wait from which a search begins, and the waits that it follows.

use super::super::waiters::{Rank, Waiters};
use crate::key::KeyId;
use crate::owner::Owner;
use crate::request::Terms;

/// A wait that is about to begin, or that stands in its queue.
#[derive(Clone, Debug)]
pub struct Wait {
    /// Where.
    pub key: KeyId,
    /// Whose.
    pub owner: Owner,
    /// For what.
    pub terms: Terms,
    /// Where it joins the queue. If its owner waits there already, it stands no further behind than that.
    pub rank: Rank,
}

impl Wait {
    pub(super) fn is_upgrade(&self) -> bool {
        self.rank == Rank::Upgrade
    }

    /// Moves to the head, or ahead of all that were moved there; it does not stand in its queue yet. Those that move there later do not
    /// push it back: it keeps its place. False if it stands ahead of all anyway.
    pub(super) fn move_ahead(&mut self, waiters: &mut Waiters) -> bool {
        self.rank = match self.rank {
            Rank::Last => Rank::Head,
            Rank::Head | Rank::Reserved(_) => Rank::Reserved(waiters.nodes.reserve()),
            Rank::Front | Rank::Upgrade => return false,
        };
        true
    }
}

/// Which waits a search follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Follow {
    Every,
    /// Not those for a request for several keys that stands ahead.
    Firm,
}
