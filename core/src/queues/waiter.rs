//! A waiting request, and its outcome.

use std::rc::Rc;

use super::keys::KeyNo;
use super::position::{Position, WaiterId};
use crate::key::{KeyId, KeyList};
use crate::owner::Owner;
use crate::request::{AcquireError, Grant, Request, Terms};
use crate::stake::Stake;
use crate::types::Instant;

/// A request that waits.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// Which.
    pub id: WaiterId,
    /// Who waits.
    pub owner: Owner,
    /// For what. The connection is 0 for one by mail.
    pub terms: Terms,
    /// Since when it waits.
    pub since: Instant,
    /// Until when; [`Instant::NEVER`] for no limit.
    pub until: Instant,
}

impl Waiter {
    /// What it asks for.
    pub fn request(&self) -> Request<'_> {
        Request {
            owner: self.owner.as_ref(),
            terms: self.terms,
        }
    }
}

/// A request, and where it waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) waiter: Waiter,
    pub(crate) position: Position,
    pub(super) queued_at: QueuedAt,
}

/// The queues in which a request stands.
#[derive(Debug)]
pub(super) enum QueuedAt {
    One(KeyNo),
    Several(Box<Several>),
}

/// The keys of a request for several.
#[derive(Debug)]
pub(super) struct Several {
    pub(super) list: Rc<[KeyId]>,
    /// Where it still waits, in the order of the list. While it is granted, the last ones go first.
    pub(super) keys: Vec<KeyNo>,
}

impl Waiting {
    pub(super) fn keys(&self) -> &[KeyNo] {
        match &self.queued_at {
            QueuedAt::One(key) => std::slice::from_ref(key),
            QueuedAt::Several(several) => &several.keys,
        }
    }

    pub(crate) fn is_for_several(&self) -> bool {
        matches!(self.queued_at, QueuedAt::Several(_))
    }
}

/// A waiter that left the queue with an answer.
#[derive(Debug)]
pub struct Decided {
    /// Who.
    pub waiter: Box<Waiter>,
    /// All keys that it asked for.
    pub keys: KeyList,
    /// The answer.
    pub verdict: Verdict,
}

/// A waiter that was taken out of its queue, or out of all of its queues.
#[derive(Debug)]
pub struct Removed {
    /// Who.
    pub waiter: Box<Waiter>,
    /// All keys that it asked for.
    pub keys: KeyList,
}

/// The answer to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Granted {
        /// Its grant.
        grant: Grant,
        /// The owner's stake before it, to go back to if the grant cannot be delivered.
        before: Option<Stake>,
        /// Nobody else holds.
        alone: bool,
    },
    /// Null: the hold that it wanted to add to has ended or has another token, or its limit leaves no room for more.
    Denied,
    /// It can never be granted.
    Refused(AcquireError),
}

/// What one settle did.
#[derive(Debug, Default)]
pub struct Settled {
    /// Waiters that left, in the order in which they were decided.
    pub decided: Vec<Decided>,
    /// Waiters that stay but have become upgrades, which may have closed a cycle.
    pub upgrading: Vec<WaiterId>,
    /// Other keys, which a request for several keys has left, or where requests were moved: settle them, too.
    pub left: Vec<KeyId>,
    /// The settle stopped at its bound: settle again.
    pub more: bool,
}
