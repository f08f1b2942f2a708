//! The one rule of locking: who may hold beside whom, and whether a request is admitted.
//!
//! All that need this rule use it from here: the live lock, a replica that applies effects, the decoder, code that guesses whether a
//! hand-off is possible, and the search for deadlocks.
//!
//! A limit belongs to the request. The lock stores none.

use crate::request::{AcquireError, Busy, Terms};
use crate::stake::Stake;
use crate::types::{Count, Mode};

/// Two owners may hold in these modes at the same time.
pub const fn compatible(one: Mode, other: Mode) -> bool {
    matches!((one, other), (Mode::Read, Mode::Read))
}

/// All holders of a lock, as the rule sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holders {
    /// The mode in which they hold; `None` if nobody does. A writer holds alone.
    pub(crate) mode: Option<Mode>,
    /// Nobody holds but the owner that asks, if it does.
    pub(crate) no_other: bool,
    /// What the request's limit leaves beside the read counts of all; `None` without a limit.
    pub(crate) room: Option<u32>,
}

impl Holders {
    /// What is left of `limit` beside holds whose read counts add up to `reads`: nothing if they exceed it.
    pub(crate) fn room_beside(reads: u64, limit: Count) -> u32 {
        // It is less than the limit.
        u64::from(limit.get()).saturating_sub(reads) as u32
    }

    fn have_room(self, permits: u32) -> bool {
        self.room.is_none_or(|room| permits <= room)
    }
}

/// How many permits a new hold takes.
const fn permits(terms: &Terms) -> Count {
    match terms.holds {
        Some(count) => count,
        None => Count::ONE,
    }
}

/// True if the request of an owner that holds nothing here waits for its limit, beside others whose read counts add up to `reads`.
pub(crate) fn waits_for_limit(terms: &Terms, reads: u64) -> bool {
    let holders = Holders {
        mode: Some(Mode::Read),
        no_other: false,
        room: (terms.sharing.limit()).map(|limit| Holders::room_beside(reads, limit)),
    };
    !holders.have_room(permits(terms).get())
}

/// Admits `request` of an owner that holds `stake`, or nothing.
///
/// # Errors
/// Why it has to wait, or can never be granted.
pub(crate) fn admit(
    terms: &Terms,
    stake: Option<&Stake>,
    holders: Holders,
    turn: Turn,
) -> Result<Growth, AcquireError> {
    check_token(terms, stake)?;
    match stake {
        Some(stake) => admit_more(terms, stake, holders),
        None => admit_new(terms, holders, turn),
    }
}

/// A request with a token finds the hold that it wants to add to. A revoked hold refuses it, whatever the token.
fn check_token(terms: &Terms, stake: Option<&Stake>) -> Result<(), AcquireError> {
    let is_there = |token| stake.is_some_and(|stake| stake.revoked || stake.token >= token);
    match terms.token {
        Some(token) if !is_there(token) => Err(AcquireError::NotHeldByToken),
        _ => Ok(()),
    }
}

/// How a request stands to the lock's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Others wait, and it came after them.
    Behind,
    /// Nobody waits, or it is the first in the queue.
    First,
}

/// Admits the request of an owner that holds nothing here.
fn admit_new(terms: &Terms, holders: Holders, turn: Turn) -> Result<Growth, AcquireError> {
    let count = permits(terms);
    let mut modes = holders.mode.into_iter();
    let beside_holders = modes.all(|mode| compatible(mode, terms.mode()));
    if turn == Turn::Behind || !beside_holders || !holders.have_room(count.get()) {
        return Err(AcquireError::Busy(Busy::Held));
    }
    let upgrade = false;
    Ok(Growth { count, upgrade })
}

/// How a hold grows, or begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    /// What the count of the mode becomes.
    pub(crate) count: Count,
    /// A reader becomes a writer.
    pub(crate) upgrade: bool,
}

/// Admits the request of an owner that holds `stake`. It does not stand behind waiters, and never waits for a limit. A revoked hold never
/// grows, whatever else the request would wait for.
fn admit_more(terms: &Terms, stake: &Stake, holders: Holders) -> Result<Growth, AcquireError> {
    if stake.revoked {
        return Err(AcquireError::Revoked);
    }
    let upgrade = is_upgrade(terms, stake);
    if upgrade && !holders.no_other {
        return Err(AcquireError::Busy(Busy::Upgrade));
    }
    let before = stake.count(terms.mode());
    let count = match terms.holds {
        Some(count) => count,
        None => Count::new(before + 1).ok_or(AcquireError::CountTooHigh)?,
    };
    // The owner keeps what it holds already, even if that exceeds the limit.
    if !holders.have_room(count.get().saturating_sub(before)) {
        return Err(AcquireError::NoRoom);
    }
    Ok(Growth { count, upgrade })
}

/// Why the request of an owner is not granted while nothing is.
pub(crate) fn refuse_in_grace(terms: &Terms, stake: Option<&Stake>) -> AcquireError {
    match (check_token(terms, stake), stake) {
        (Err(error), _) => error,
        (_, Some(stake)) if stake.revoked => AcquireError::Revoked,
        (_, Some(stake)) if is_upgrade(terms, stake) => AcquireError::Busy(Busy::Upgrade),
        _ => AcquireError::Busy(Busy::Held),
    }
}

/// The owner of `stake` reads and asks for write.
fn is_upgrade(terms: &Terms, stake: &Stake) -> bool {
    terms.mode() == Mode::Write && stake.write == 0
}
