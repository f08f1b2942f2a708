//! Letters, and the answers in them.

use crate::key::{Db, KeyList};
use crate::owner::Owner;
use crate::queues::{Decided, Verdict, Waiter, WaiterId};
use crate::request::AcquireError;
use crate::types::{Instant, Lease, Mode, Token};

/// A box: the number that it got when it was created, `since` in the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoxId(pub u64);

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Granted {
        /// The fencing token.
        token: Token,
        /// The lease, as it was granted.
        lease: Lease,
        /// When.
        at: Instant,
    },
    /// Its wait is over, or the read hold that it wanted to upgrade has ended.
    Denied,
    /// The error that a blocked request would have got.
    Refused(Box<str>),
}

impl Outcome {
    /// The outcome of a waiter that was decided at `now`; `refusal` is the text of an error.
    pub fn of(
        decided: &Decided,
        now: Instant,
        refusal: impl FnOnce(AcquireError) -> Box<str>,
    ) -> Outcome {
        match decided.verdict {
            Verdict::Granted { grant, .. } => Outcome::Granted {
                token: grant.token(),
                lease: decided.waiter.terms.lease,
                at: now,
            },
            Verdict::Denied => Outcome::Denied,
            Verdict::Refused(error) => Outcome::Refused(refusal(error)),
        }
    }
}

/// An answer that is delivered again until it is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// The request that it answers.
    pub waiter: WaiterId,
    /// The requested keys, in the database where they were then.
    pub keys: KeyList,
    /// The owner that asked.
    pub owner: Owner,
    /// For what.
    pub mode: Mode,
    /// The answer.
    pub outcome: Outcome,
}

impl Letter {
    /// The answer to a waiter of `keys`.
    pub fn of(keys: KeyList, waiter: &Waiter, outcome: Outcome) -> Letter {
        Letter {
            waiter: waiter.id,
            keys,
            owner: waiter.owner.clone(),
            mode: waiter.terms.mode(),
            outcome,
        }
    }
}

/// A letter as it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Numbered<'a> {
    /// Larger than that of every letter before.
    pub number: u64,
    /// The database of its key: of a grant the one where SWAPDB has put the lock since.
    pub db: Db,
    /// The result.
    pub letter: &'a Letter,
}

/// How old a grant of `at` is, in milliseconds, where the clock shows `now` in microseconds. The lease counts from the millisecond in which
/// it was granted, so this age is never too small.
pub fn age(at: Instant, now: u64) -> u64 {
    now.div_ceil(1_000).saturating_sub(at.as_millis())
}

/// What became of an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is a letter in this box.
    In(BoxId),
    /// The box is closed: the answer is never delivered.
    Returned,
    /// The request did not wait by mail.
    NotByMail,
}

/// What leaves with a closed box.
#[derive(Debug, PartialEq, Eq)]
pub enum Leaving {
    /// To be taken out of its queue.
    Request(WaiterId),
    /// The letter of this request, which was never delivered.
    Undelivered(WaiterId),
    /// Nothing is to be done for it.
    Letter,
}

/// The box belongs to another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotYours;
