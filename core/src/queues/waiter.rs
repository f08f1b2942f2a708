//! A request that waits, and what becomes of it.

use crate::owner::Owner;
use crate::request::{AcquireError, Grant, Request};
use crate::stake::Stake;
use crate::types::{Count, Instant, Lease, Mode, Token};

/// A waiter, the same for as long as the process runs. A later one has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(pub u64);

/// A request that waits.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// Which.
    pub id: WaiterId,
    /// Who waits.
    pub owner: Owner,
    /// For what.
    pub mode: Mode,
    /// For how long it will hold from the grant on.
    pub lease: Lease,
    /// See [`Request::holds`].
    pub holds: Option<Count>,
    /// See [`Request::fence`]. It was within the bound when it was asked.
    pub fence: Option<Token>,
    /// See [`Request::token`].
    pub token: Option<Token>,
    /// The connection that waits, 0 for none.
    pub client: u64,
    /// Since when it waits.
    pub since: Instant,
    /// Until when; `None` for no limit.
    pub limit: Option<Instant>,
}

impl Waiter {
    /// What it asks for.
    pub fn request(&self) -> Request<'_> {
        Request {
            owner: self.owner.as_ref(),
            mode: self.mode,
            lease: self.lease,
            holds: self.holds,
            fence: self.fence,
            token: self.token,
            client: self.client,
        }
    }
}

/// What a request that is made again brings: all else of it stays, its place above all.
#[derive(Clone, Copy, Debug)]
pub struct Changed {
    /// See [`Waiter::lease`].
    pub lease: Lease,
    /// See [`Waiter::holds`].
    pub holds: Option<Count>,
    /// See [`Waiter::fence`].
    pub fence: Option<Token>,
    /// See [`Waiter::token`].
    pub token: Option<Token>,
    /// See [`Waiter::limit`].
    pub limit: Option<Instant>,
}

/// A waiter that left the queue with an answer.
#[derive(Debug)]
pub struct Decided {
    /// Who.
    pub waiter: Box<Waiter>,
    /// The answer.
    pub verdict: Verdict,
}

/// What a waiter is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Granted {
        /// What it was granted.
        grant: Grant,
        /// The owner's stake after the grant.
        stake: Stake,
        /// The owner's stake before it, to go back to if nobody can be told.
        before: Option<Stake>,
        /// Nobody else holds.
        alone: bool,
    },
    /// The hold that it wanted to add to has ended, or has another token.
    UpgradeLost,
    /// It can never be granted.
    Refused(AcquireError),
}

/// What settling a queue brought.
#[derive(Debug, Default)]
pub struct Settled {
    /// Waiters that left, in the order in which they were decided.
    pub decided: Vec<Decided>,
    /// Waiters that stay but have become upgrades, which may have closed a cycle.
    pub upgrading: Vec<WaiterId>,
    /// As many were decided as was asked for, and others may have to be: settle again.
    pub more: bool,
}
