//! A waiting request, and its outcome.

use super::keys::KeyNo;
use super::position::{Position, WaiterId};
use crate::key::{KeyId, KeyList};
use crate::owner::Owner;
use crate::request::{AcquireError, Busy, Grant, Request, Terms};
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

/// Where a request joins its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Ahead of all others, behind earlier upgrades.
    Upgrade,
    /// Behind all.
    Last,
}

impl Rank {
    /// Where the request `id` stands.
    pub(super) fn position(self, id: WaiterId) -> Position {
        match self {
            Self::Upgrade => Position::of_upgrade(id),
            Self::Last => Position::of_regular(id),
        }
    }
}

impl From<Busy> for Rank {
    /// The rank of a request that has to wait for this reason.
    fn from(busy: Busy) -> Self {
        match busy {
            Busy::Upgrade => Self::Upgrade,
            Busy::Held => Self::Last,
        }
    }
}

/// A request, and where it waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) waiter: Waiter,
    pub(crate) position: Position,
    pub(super) place: Place,
}

/// The queues in which a request stands.
#[derive(Debug)]
pub(super) enum Place {
    One(KeyNo),
    Several(Box<Several>),
}

/// The keys of a request for several.
#[derive(Debug)]
pub(super) struct Several {
    pub(super) list: KeyList,
    /// Where it still waits, in the order of the list. While it is granted, the last ones go first.
    pub(super) keys: Vec<KeyNo>,
    /// A bit for each of them: the request is the first in that queue, and the lock admits it, as far as is known.
    pub(super) ready: u16,
}

impl Several {
    pub(super) fn is_ready(&self) -> bool {
        self.ready.count_ones() as usize == self.list.as_slice().len()
    }
}

impl Waiting {
    pub(super) fn keys(&self) -> &[KeyNo] {
        match &self.place {
            Place::One(key) => std::slice::from_ref(key),
            Place::Several(several) => &several.keys,
        }
    }

    pub(crate) fn is_for_several(&self) -> bool {
        matches!(self.place, Place::Several(_))
    }

    /// All its keys, if they are several.
    pub(super) fn key_list(&self) -> Option<KeyList> {
        match &self.place {
            Place::One(_) => None,
            Place::Several(several) => Some(several.list.clone()),
        }
    }
}

/// A waiter that left the queue with an answer.
#[derive(Debug)]
pub struct Decided {
    /// Who.
    pub waiter: Box<Waiter>,
    /// All keys that it asked for, if they are several.
    pub keys: Option<KeyList>,
    /// The answer.
    pub verdict: Verdict,
}

impl Decided {
    /// The key that its answer names: the first one, if they are several, else the one that was settled.
    pub fn key<'a>(&'a self, settled: &'a KeyId) -> &'a KeyId {
        let keys = self.keys.as_ref().map(KeyList::as_slice);
        keys.and_then(<[KeyId]>::first).unwrap_or(settled)
    }
}

/// A waiter that was taken out of its queue, or out of all of its queues.
#[derive(Debug)]
pub struct Removed {
    /// Where it waited; the first key, if they are several.
    pub key: KeyId,
    /// Who.
    pub waiter: Box<Waiter>,
    /// All keys that it asked for, if they are several.
    pub keys: Option<KeyList>,
}

impl Removed {
    /// The keys whose queues it has left.
    pub fn keys(&self) -> &[KeyId] {
        match &self.keys {
            Some(keys) => keys.as_slice(),
            None => std::slice::from_ref(&self.key),
        }
    }
}

/// The answer to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Granted {
        /// Its grant.
        grant: Grant,
        /// The owner's stake after the grant.
        stake: Stake,
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
