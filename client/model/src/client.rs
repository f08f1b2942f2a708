//! A client: what it believes, and what it has on its way.

use crate::{LEASE, NODES};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) round: u8,
    pub(crate) renewals: u8,
    pub(crate) phase: Phase,
    /// A token that was seen, and when.
    pub(crate) seen: Option<(u8, u8)>,
    /// What is on its way to each server, in order: one connection each.
    pub(crate) requests: [Vec<Request>; NODES],
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
        sent: u8,
        /// When a renewal was sent, and who has confirmed it.
        renewal: Option<(u8, [bool; NODES])>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Request {
    Acquire { round: u8, fence: u8 },
    Fence { round: u8, token: u8 },
    Renew { round: u8, sent: u8 },
    Release { round: u8 },
}

impl Client {
    /// From when the request was sent, never from when it was answered.
    pub(crate) fn believes(&self, now: u8) -> bool {
        matches!(self.phase, Phase::Holding { sent, .. } if now < sent + LEASE)
    }

    /// Whether an answer to this request would change anything: only then it matters whether it arrives.
    pub(crate) fn listens_to(&self, request: Request) -> bool {
        match (request, &self.phase) {
            (Request::Acquire { round, .. }, Phase::Asking { .. })
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
