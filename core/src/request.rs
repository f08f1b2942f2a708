//! Requests to a lock, and their results.

use crate::owner::OwnerRef;
use crate::stake::Stake;
use crate::types::{Count, Instant, Lease, Mode, Sharing, Token};

/// A request to hold.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Who asks.
    pub owner: OwnerRef<'a>,
    /// For what.
    pub terms: Terms,
}

/// What a request asks for: the same value from the command that parses it to the queue in which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// To read or to write, and up to which limit.
    pub sharing: Sharing,
    /// For how long from the grant on.
    pub lease: Lease,
    /// Leave the mode's count at exactly this, instead of raising it by one.
    pub holds: Option<Count>,
    /// The token of a new hold is at least this. It is within the token clock's bound at the time
    /// of the request.
    pub fence: Option<Token>,
    /// Only to add to a hold whose token is this or higher; never to make one.
    pub token: Option<Token>,
    /// The connection that asks, 0 if unknown.
    pub client: u64,
}

impl Terms {
    /// To read or to write.
    pub const fn mode(&self) -> Mode {
        self.sharing.mode()
    }
}

/// What a grant gave the owner, and the hold after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// A hold where the owner had none.
    New(Stake),
    /// More of what the owner held already, or read beside its write: the same token.
    Reentry(Stake),
    /// Write for the sole reader: a new token.
    Upgrade(Stake),
}

impl Grant {
    /// The hold after the grant.
    pub fn stake(self) -> Stake {
        match self {
            Self::New(stake) | Self::Reentry(stake) | Self::Upgrade(stake) => stake,
        }
    }

    /// The hold's token after the grant.
    pub fn token(self) -> Token {
        self.stake().token
    }
}

/// Why a request has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Others hold incompatibly or fill its limit, or stand ahead of it.
    Held,
    /// The owner reads, and so do others: an upgrade waits for them, ahead of the queue.
    Upgrade,
}

/// Why a request was not granted. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireError {
    /// It has to wait.
    Busy(Busy),
    /// It may only add to a hold, and the owner has none by that token.
    NotHeldByToken,
    /// It asks for several keys at once, and the owner has come to hold one of them in another way.
    HoldsOne,
    /// The owner's hold is revoked: the owner is granted nothing more.
    Revoked,
    /// The owner holds already, and its limit leaves no room for more: a holder does not wait for a limit.
    NoRoom,
    /// The count of the mode would pass [`Count::MAX`].
    CountTooHigh,
    /// The last token has been handed out.
    OutOfTokens,
}

/// How much of a hold a release takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// One of the mode's count. No mode: the one the owner holds.
    One(Option<Mode>),
    /// Leave the mode's count at this, 0 and up; never raises it.
    LeaveAt(u32, Option<Mode>),
    /// The whole hold, both modes.
    All,
}

/// A request to release.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// Who releases.
    pub owner: OwnerRef<'a>,
    /// How much.
    pub how: How,
    /// Only if the hold's token is this.
    pub token: Option<Token>,
}

/// What a release left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// Holds the owner has left, both modes together; 0: it holds nothing any more.
    pub left: u64,
    /// The release changed something: one that leaves the count as it was does not.
    pub changed: bool,
    /// When the hold was first granted.
    pub since: Instant,
}

/// What became of a hold that was to be revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// What is left of its lease, in milliseconds.
    pub left: u64,
    /// It was not revoked before.
    pub changed: bool,
}

/// Why a release changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseError {
    /// The owner holds nothing here, or not in that mode, or not with that token.
    NotHeld,
    /// The owner holds both modes and named neither.
    ModeNotNamed,
}

/// A request to pass a hold on to another owner.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// Who gives.
    pub owner: OwnerRef<'a>,
    /// Who holds from then on.
    pub new_owner: OwnerRef<'a>,
    /// How long the hold lasts from then on.
    pub lease: Lease,
    /// Only if the hold's token is this.
    pub token: Option<Token>,
    /// The connection that passes it on, 0 if unknown.
    pub client: u64,
}

/// The result of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The new token.
    pub token: Token,
    /// When the hold was first granted to its old owner.
    pub since: Instant,
}

/// Why a pass changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassError {
    /// The old owner has nothing to pass on here, or not by that token.
    NotHeld,
    /// The new owner holds here already.
    AlreadyHeld,
    /// The last token has been handed out.
    OutOfTokens,
}
