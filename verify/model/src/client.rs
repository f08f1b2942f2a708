//! A client: what it believes, and its pending requests.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::belief::{Belief, Grant, Part};
use crate::name::Mode;
use crate::time::{BootInstant, Lease};
use crate::token::Token;
use crate::votes::Tally;
use crate::{LEASE, MAJORITY, NODES};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) round: u8,
    pub(crate) renewals: u8,
    pub(crate) phase: Phase,
    /// The pending requests to each server, over one connection each.
    pub(crate) requests: [Pipeline; NODES],
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    Idle,
    Asking {
        sent: u8,
        tokens: [Option<u8>; NODES],
    },
    /// Writing a token back.
    Fencing {
        sent: u8,
        token: u8,
        tokens: [Option<u8>; NODES],
    },
    Holding {
        token: u8,
        shares: [Share; NODES],
        /// When the pending renewal was sent.
        renewal: Option<u8>,
        /// The belief has ended, and stays so.
        is_lost: bool,
    },
}

/// What a client knows of one server's share in its hold. Small, because the checker copies millions of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Share {
    /// A request sent at `sent` was granted by this token, or renewed it.
    Held {
        token: u8,
        sent: u8,
    },
    Unknown,
}

/// A tick of the model as the client's boot-time clock shows it.
pub(crate) fn at(tick: u8) -> BootInstant {
    BootInstant::default() + Duration::from_secs(u64::from(tick) + 1)
}

pub(crate) fn lease() -> Lease {
    Lease::new(Duration::from_secs(u64::from(LEASE))).expect("a lease")
}

fn grant(token: u8, sent: u8) -> Grant {
    Grant::new(Token::new(token.into()), at(sent), lease())
}

/// The client's belief in a hold: its parts are what servers granted or renewed.
fn belief(token: u8, shares: &[Share; NODES]) -> Belief {
    let part = |share: &Share| match *share {
        Share::Held { token, sent } => Some(Part::new(grant(token, sent), lease())),
        Share::Unknown => None,
    };
    let parts = shares.iter().filter_map(part).collect();
    Belief::new(
        Token::new(token.into()),
        Mode::Write,
        lease(),
        MAJORITY,
        parts,
    )
}

/// The client's votes: the tokens that servers have granted for requests sent at `sent`.
pub(crate) fn tally(sent: u8, tokens: &[Option<u8>; NODES]) -> Tally {
    let grants = tokens.iter().map(|token| token.map(|it| grant(it, sent)));
    Tally {
        grants: grants.collect(),
        pending: tokens.iter().filter(|token| token.is_none()).count(),
    }
}

/// Requests in order. On the stack, because the checker copies millions of states.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pipeline {
    length: u8,
    /// `None` after the last.
    requests: [Option<Request>; Pipeline::LONGEST],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    Acquire { round: u8 },
    Fence { round: u8, token: u8 },
    Renew { round: u8, sent: u8 },
    Release { round: u8 },
}

impl Client {
    /// Counted from when the request was sent, never from its reply.
    pub(crate) fn believes(&self, now: u8) -> bool {
        match &self.phase {
            Phase::Holding {
                token,
                shares,
                is_lost: false,
                ..
            } => belief(*token, shares).loss(at(now)).is_none(),
            _ => false,
        }
    }

    /// Whether the reply to this request would change anything. If not, the model need not lose it.
    pub(crate) fn listens_to(&self, request: Request) -> bool {
        match (request, &self.phase) {
            (Request::Acquire { round, .. }, Phase::Asking { .. } | Phase::Holding { .. })
            | (Request::Fence { round, .. }, Phase::Fencing { .. })
            | (Request::Renew { round, .. }, Phase::Holding { .. }) => round == self.round,
            _ => false,
        }
    }

    pub(crate) fn send(&mut self, request: Request) {
        for requests in &mut self.requests {
            requests.push(request);
        }
    }
}

impl Pipeline {
    /// As many as a client sends in three rounds with two renewals.
    const LONGEST: usize = 12;

    pub(crate) fn push(&mut self, request: Request) {
        self.requests[usize::from(self.length)] = Some(request);
        self.length += 1;
    }

    pub(crate) fn first(&self) -> Option<Request> {
        self.requests[0]
    }

    pub(crate) fn pop(&mut self) -> Option<Request> {
        let first = self.requests[0].take()?;
        let length = usize::from(self.length);
        self.requests[..length].rotate_left(1);
        self.length -= 1;
        Some(first)
    }
}

impl Hash for Pipeline {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.requests[..usize::from(self.length)].hash(state);
    }
}
