//! What the servers of a round have said, and what follows from it.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::Claim;
use crate::belief::Grant;
use crate::error::{Error, NodeFailure};
use crate::node::Node;
use crate::quorum::votes::{Tally, majority};
use crate::time::BootInstant;

/// What a server has said.
pub(crate) enum Vote {
    Unasked,
    Pending,
    Held(Claim, Grant),
    /// Others hold the lock there.
    Busy,
    /// It has granted it, and does not take a larger token.
    Unraised(Error),
    /// Refused, or never reached.
    Failed(Error),
}

impl Vote {
    pub(crate) fn grant(&self) -> Option<Grant> {
        match self {
            Vote::Held(_, grant) => Some(*grant),
            _ => None,
        }
    }
}

/// The servers, in the order in which clients queue, and the vote of each.
pub(crate) struct Ballot {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) votes: Vec<Vote>,
}

impl Ballot {
    /// Servers that nobody has asked, in whatever order they were listed.
    pub(crate) fn new(mut nodes: Vec<Arc<Node>>) -> Ballot {
        nodes.sort_by_cached_key(|node| node.rank());
        let votes = nodes.iter().map(|_| Vote::Unasked).collect();
        Ballot { nodes, votes }
    }

    /// The numbers of all servers.
    pub(crate) fn servers(&self) -> std::ops::Range<usize> {
        0..self.votes.len()
    }

    fn is_held(&self, server: usize) -> bool {
        matches!(self.votes[server], Vote::Held(..))
    }

    fn is_busy(&self, server: usize) -> bool {
        matches!(self.votes[server], Vote::Busy)
    }

    pub(crate) fn is_pending(&self, server: usize) -> bool {
        matches!(self.votes[server], Vote::Pending)
    }

    /// Whether it may still answer: not if it did not the last time.
    fn may_answer(&self, server: usize) -> bool {
        self.is_pending(server) && !self.nodes[server].link.is_silent()
    }

    /// Whether the server has said something of the lock that may be relied on.
    fn has_answered(&self, server: usize) -> bool {
        self.is_held(server) || self.is_busy(server)
    }

    /// The first server that has answered.
    fn first(&self) -> Option<usize> {
        self.servers().find(|server| self.has_answered(*server))
    }

    /// Whether a server that comes before all that have answered may still do so.
    pub(crate) fn awaits_earlier(&self) -> bool {
        (0..self.first().unwrap_or(0)).any(|server| self.may_answer(server))
    }

    /// Where to queue: on the first server that answers, if others hold any.
    pub(crate) fn first_to_queue_on(&self) -> Option<Arc<Node>> {
        let is_busy = self.servers().any(|server| self.is_busy(server));
        let first = self.first().filter(|_| is_busy)?;
        Some(self.nodes[first].clone())
    }

    /// The number of a server in this round: another one where an identity has become known.
    pub(crate) fn number(&self, node: &Arc<Node>) -> Option<usize> {
        self.nodes.iter().position(|it| Arc::ptr_eq(it, node))
    }

    /// The grants. A server that did not answer the last time decides nothing before it does.
    pub(crate) fn tally(&self) -> Tally {
        let pending = self.servers().filter(|server| self.may_answer(*server));
        Tally {
            grants: self.votes.iter().map(Vote::grant).collect(),
            pending: pending.count(),
        }
    }

    /// The servers whose tokens are far ahead of the others'.
    pub(crate) fn ahead(&self) -> Vec<usize> {
        self.tally().ahead(BootInstant::now()).collect()
    }

    /// Whether a majority has answered.
    pub(crate) fn has_answer(&self) -> bool {
        let ahead = self.ahead();
        let is_answer = |server: &usize| self.has_answered(*server) && !ahead.contains(server);
        self.servers().filter(is_answer).count() >= majority(self.votes.len())
    }

    /// Whether so many servers refuse it that asking again cannot help.
    pub(crate) fn is_refused(&self) -> bool {
        let is_final = |vote: &&Vote| match vote {
            Vote::Failed(error) | Vote::Unraised(error) => !error.is_retried(),
            _ => false,
        };
        let refusals: Vec<&Vote> = self.votes.iter().filter(is_final).collect();
        let spare = self.votes.len() - majority(self.votes.len());
        let is_unraised = |vote: &&Vote| matches!(vote, Vote::Unraised(_));
        refusals.len() > spare || refusals.iter().any(is_unraised)
    }

    /// That too few servers have granted it, and why: those that are pending have not answered in this time, since the round began.
    pub(crate) fn no_quorum(&self, waited: Duration, limit: Duration) -> Error {
        let ahead = self.ahead();
        let failure = |server: usize| {
            let node = &self.nodes[server];
            let reason = match &self.votes[server] {
                Vote::Held(..) if ahead.contains(&server) => Error::Ahead,
                Vote::Held(..) | Vote::Unasked => return None,
                Vote::Busy => Error::Busy { waited },
                Vote::Pending => node.link.no_reply(limit),
                Vote::Unraised(error) | Vote::Failed(error) => error.clone(),
            };
            Some(NodeFailure::new(&node.name, reason))
        };
        let granted = self.servers().filter(|server| self.is_held(*server));
        Error::NoQuorum {
            needed: majority(self.votes.len()),
            granted: granted.count() - ahead.len(),
            nodes: self.servers().filter_map(failure).collect(),
        }
    }
}
