//! Why a command may be refused: the text of the reply. It names the argument and its bounds; nothing has been changed.

use std::borrow::Cow;

use mortise_core::{AcquireError, Token, TokenTooHigh};

/// The text of an error reply, its code first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error(Cow<'static, str>);

/// Errors that say nothing but what they are.
impl Error {
    pub(crate) const WRONG_TYPE: Self =
        Self::fixed("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const READ_ONLY: Self = Self::fixed("READONLY locks change only on the primary");
    pub(crate) const MODE_NOT_NAMED: Self =
        Self::fixed("ERR the owner holds both modes: name READ or WRITE, or drop both with ALL");
    pub(crate) const COUNT_TOO_HIGH: Self =
        Self::fixed("ERR the count of holds would exceed 2147483647");
    pub(crate) const OUT_OF_TOKENS: Self = Self::fixed("ERR no fencing token is left below 2^53");
    /// The box belongs to another user.
    pub(crate) const NOT_YOUR_BOX: Self = Self::fixed("NOPERM the box belongs to another user");
    /// The owner's hold on the key is revoked, so the owner is granted nothing more there.
    pub(crate) const REVOKED: Self = Self::fixed(
        "REVOKED the owner's hold on this key was revoked: give it back with LOCK.LEAVE, \
         or wait until its lease ends, and ask again then",
    );
    /// The owner has left the key, and that time is not over.
    pub(crate) const LEFT: Self =
        Self::fixed("LEFT the owner has left this key: ask again under a new name");
    /// A hold cannot be passed on to an owner that holds.
    pub(crate) const ALREADY_HELD: Self = Self::fixed("ERR newowner holds this lock already");
    /// The owner holds some of the keys that it asks for together, or not all of them by one token.
    pub(crate) const HOLDS_ONE: Self = Self::fixed(
        "ERR the owner holds one of these keys: LOCK.MACQUIRE is for an owner that holds none of them, or all of \
         them for writing by one token",
    );
    /// The owner waits at one of the keys that it asks for together.
    pub(crate) const WAITS_HERE: Self = Self::fixed(
        "ERR the owner waits at one of these keys already: only the same request by mail, for the same keys, may be \
         sent again",
    );
    /// The owner waits at the key for several keys together.
    pub(crate) const WAITS_FOR_SEVERAL: Self = Self::fixed(
        "ERR the owner waits at this key with LOCK.MACQUIRE, and may ask for nothing else here until that is answered",
    );
    /// The slot is on its way to or from this server, key by key.
    pub(crate) const SLOT_MOVES: Self = Self::fixed(
        "TRYAGAIN the slot of the keys is being migrated: several of its keys cannot be granted together before that \
         is done",
    );
    /// Another module changed a key while several were granted.
    pub(crate) const KEYS_CHANGED: Self = Self::fixed(
        "TRYAGAIN another module changed one of the keys while they were granted: none is held",
    );
    /// The owner does not hold the lock by the token that it names.
    pub(crate) const NOT_HELD: Self =
        Self::fixed("NOTHELD the owner does not hold the lock by this token");
    /// The wait ended without an answer.
    pub(crate) const NO_PRIMARY: Self =
        Self::fixed("UNBLOCKED this server is no longer the primary, ask again");
    pub(crate) const SLOT_HAS_LEFT: Self =
        Self::fixed("UNBLOCKED the key's slot is no longer on this server, ask again");
    pub(crate) const NEWER_MAIL: Self =
        Self::fixed("UNBLOCKED a newer LOCK.MAIL waits for this box");
    pub(crate) const BUG: Self = Self::fixed("ERR internal error, see the server's log");

    const fn fixed(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// Errors that name what was given, or what would be right.
impl Error {
    pub(crate) fn new(text: String) -> Self {
        Self(text.into())
    }

    /// The arguments do not form a command.
    pub(crate) fn syntax(why: &str) -> Self {
        Self::new(format!("ERR syntax error: {why}"))
    }

    /// An argument is out of its bounds.
    pub(crate) fn bounds(argument: &str, bounds: &str, got: &[u8]) -> Self {
        Self::new(format!(
            "ERR {argument} must be {bounds}, got {}",
            shown(got)
        ))
    }

    /// The token in `argument` is further ahead than it may be now.
    pub(crate) fn too_high(argument: &str, got: Token, error: TokenTooHigh) -> Self {
        let bound = error.bound.get();
        let bounds =
            format!("at most {bound} now (the last token, or one hour ahead of the clock)");
        Self::bounds(argument, &bounds, got.get().to_string().as_bytes())
    }

    /// A command that LOCK.GUARD may not run.
    pub(crate) fn not_inside(command: &str) -> Self {
        Self::new(format!("ERR {command} is not allowed inside LOCK.GUARD"))
    }

    /// An internal command, called by a client.
    pub(crate) fn internal(command: &str) -> Self {
        Self::new(format!(
            "ERR {command} is internal: only the primary and the AOF may send it"
        ))
    }

    /// An effect that cannot be read.
    pub(crate) fn bad_effect(why: &str) -> Self {
        Self::new(format!("ERR LOCK.APPLY: the effect is refused: {why}"))
    }

    /// For so many milliseconds nothing is renewed.
    pub(crate) fn not_renewing(left: u64) -> Self {
        Self::new(format!(
            "TRYAGAIN another primary may still be granting: nothing is renewed for {left} ms"
        ))
    }

    /// Nothing is granted for so many milliseconds.
    pub(crate) fn not_granting(left: u64) -> Self {
        Self::new(format!(
            "TRYAGAIN an owner unknown to this server may hold: nothing is granted for {left} ms"
        ))
    }

    /// `lock.max-waiters` requests are blocked.
    pub(crate) fn max_waiters(max: u64) -> Self {
        Self::new(format!(
            "MAXWAITERS {max} requests are blocked on this server already (lock.max-waiters)"
        ))
    }
}

/// Why the core refused a request. A client gets null for [`AcquireError::NotHeldByToken`] and [`AcquireError::NoRoom`], and
/// for [`AcquireError::Busy`] if it does not wait.
impl From<AcquireError> for Error {
    fn from(error: AcquireError) -> Self {
        match error {
            AcquireError::CountTooHigh => Self::COUNT_TOO_HIGH,
            AcquireError::Revoked => Self::REVOKED,
            AcquireError::HoldsOne => Self::HOLDS_ONE,
            AcquireError::OutOfTokens
            | AcquireError::NotHeldByToken
            | AcquireError::NoRoom
            | AcquireError::Busy(_) => Self::OUT_OF_TOKENS,
        }
    }
}

/// How much of a bad argument is shown.
const SHOWN: usize = 64;

/// An argument as an error shows it.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(SHOWN)];
    let more = if cut.len() < bytes.len() { "..." } else { "" };
    format!("'{}{more}'", cut.escape_ascii())
}
