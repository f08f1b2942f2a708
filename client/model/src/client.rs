//! A client: what it believes, and what it has on its way.

use std::hash::{Hash, Hasher};

use crate::{LEASE, NODES};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client {
    pub(crate) round: u8,
    pub(crate) renewals: u8,
    pub(crate) phase: Phase,
    /// A token that was seen, and when.
    pub(crate) seen: Option<(u8, u8)>,
    /// What is on its way to each server: one connection each.
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
        sent: u8,
        /// When a renewal was sent, and who has confirmed it.
        renewal: Option<(u8, [bool; NODES])>,
    },
}

/// Requests in order. Without memory of its own: millions of states are copied.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pipeline {
    length: u8,
    /// `None` behind the last.
    requests: [Option<Request>; Pipeline::LONGEST],
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

impl Pipeline {
    /// What a client sends in three rounds with two renewals.
    const LONGEST: usize = 12;

    pub(crate) fn push(&mut self, request: Request) {
        self.requests[usize::from(self.length)] = Some(request);
        self.length += 1;
    }

    pub(crate) fn first(&self) -> Option<Request> {
        self.requests[0]
    }

    /// Takes the first request off.
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
