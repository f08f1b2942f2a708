//! What one server has said of a name.

use crate::proto::{Answer, Failure, Reply, checked, refusal, token};
use crate::value::{BootInstant, Error, Lease, NodeReason, Token};

/// What one server has said of a name.
#[derive(Debug, Clone)]
pub(crate) enum Vote {
    /// Not asked, in this round, or it has said since that there is nothing.
    Unasked,
    /// Asked, and not heard of.
    Pending,
    Held(Held),
    /// Others hold the lock there, or it has said that there is nothing.
    Busy,
    /// Asked, and nobody knows what became of it: it may be granted yet, or has been.
    Unknown(Error),
    /// Granted by a token far ahead of the others': kept, and left with the rest, but not relied on.
    Ahead,
    /// Refused, or never reached: there is nothing.
    Failed(Error),
}

/// One server's grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) token: Token,
    /// When the server made the token, as far as that can be told from here.
    pub(crate) made: BootInstant,
    /// How long it may be believed in.
    pub(crate) until: BootInstant,
    /// That it is there is known, but the request itself was not answered: it may arrive once more.
    pub(crate) late: bool,
}

impl Vote {
    /// A grant that counts from `since`.
    pub(crate) fn granted(token: Token, since: BootInstant, lease: Lease) -> Vote {
        Vote::Held(Held {
            token,
            made: since,
            until: lease.believed_until(since),
            late: false,
        })
    }

    /// What the answer to a request says that was sent at `sent`.
    pub(crate) fn of(answer: Answer, sent: BootInstant, lease: Lease, server: &str) -> Vote {
        match answer {
            Ok(Reply::Error(line)) => Vote::Failed(refusal(line, server)),
            Err(failure @ Failure::NotSent(_)) => Vote::Failed(failure.error(server)),
            answer => match checked(answer, server).and_then(token) {
                Ok(Some(token)) => Vote::granted(token, sent, lease),
                Ok(None) => Vote::Busy,
                Err(error) => Vote::Unknown(error),
            },
        }
    }

    /// The grant, if it is one.
    pub(crate) fn held(&self) -> Option<&Held> {
        match self {
            Vote::Held(held) => Some(held),
            _ => None,
        }
    }

    /// Whether there may be something of the name, and whether something of it may arrive late.
    pub(crate) fn may_be_there(&self) -> Option<bool> {
        match self {
            Vote::Unasked | Vote::Busy | Vote::Failed(_) => None,
            Vote::Held(held) => Some(held.late),
            Vote::Ahead => Some(false),
            Vote::Pending | Vote::Unknown(_) => Some(true),
        }
    }

    /// Why it is no grant.
    pub(crate) fn reason(&self) -> Option<NodeReason> {
        match self {
            Vote::Held(_) | Vote::Unasked => None,
            Vote::Busy => Some(NodeReason::Busy),
            Vote::Ahead => Some(NodeReason::Ahead),
            Vote::Pending => Some(NodeReason::Silent),
            Vote::Unknown(error) | Vote::Failed(error) => Some(NodeReason::of(error.clone())),
        }
    }
}
