//! Why a command may be refused, and the text of the reply.

use std::fmt;

use mortise_core::{AcquireError, Token, TokenTooHigh};

/// An error reply. Its text names the argument and its bounds; nothing has been changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// One of the constants below.
    Fixed(&'static str),
    /// An argument is out of its bounds.
    Bounds {
        argument: &'static str,
        bounds: String,
        got: Vec<u8>,
    },
    /// An unknown option.
    UnknownOption(Vec<u8>),
    /// An option that was given already.
    Twice(&'static str),
    /// An option whose value is missing.
    NoValue(&'static str),
    /// Two options that exclude each other.
    Exclusive(&'static str, &'static str),
    /// The wait would close a cycle through these keys, and through so many others that the user may not read.
    Deadlock { keys: Vec<Vec<u8>>, hidden: usize },
    /// This many requests wait already, which is the limit.
    MaxWaiters(u64),
    /// This many requests, letters and boxes exist already, which is the limit.
    MaxQueued(u64),
    /// This box has so many of them already, which is its limit.
    BoxFull(u64),
    /// An option without the others that it needs.
    Needs(&'static str, &'static str),
    /// For so many milliseconds nothing is renewed: another primary may still be granting.
    TryAgain(u64),
    /// Nothing is granted for so many milliseconds.
    NotGranting(u64),
    /// A key is named twice.
    KeyTwice(Vec<u8>),
    /// A command that LOCK.GUARD may not run.
    NotInside(&'static str),
    /// There is no command of this name.
    UnknownCommand(Vec<u8>),
    /// The wait ended without an answer.
    Unblocked(&'static str),
    /// `fence` or `token` is further ahead than it may be now.
    TokenTooHigh {
        argument: &'static str,
        bound: Token,
        got: Option<Token>,
    },
    /// An internal command, called by a client.
    Internal(&'static str),
    /// An effect that cannot be read.
    BadEffect(String),
}

/// Errors that say nothing but what they are.
impl Error {
    pub(crate) const WRONG_TYPE: Self =
        Self::Fixed("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(crate) const READ_ONLY: Self = Self::Fixed("READONLY locks change only on the primary");
    pub(crate) const MODE_NOT_NAMED: Self =
        Self::Fixed("ERR the owner holds both modes: name READ or WRITE, or drop both with ALL");
    pub(crate) const COUNT_TOO_HIGH: Self =
        Self::Fixed("ERR the count of holds would exceed 2147483647");
    pub(crate) const OUT_OF_TOKENS: Self = Self::Fixed("ERR no fencing token is left below 2^53");
    /// The box belongs to another user.
    pub(crate) const NOT_YOUR_BOX: Self = Self::Fixed("NOPERM the box belongs to another user");
    /// The owner's hold on the key is revoked, so the owner is granted nothing more there.
    pub(crate) const REVOKED: Self = Self::Fixed(
        "REVOKED the owner's hold on this key was revoked: give it back with LOCK.LEAVE, \
         or wait until its lease ends, and ask again then",
    );
    /// The owner has left the key, and that time is not over.
    pub(crate) const LEFT: Self =
        Self::Fixed("LEFT the owner has left this key: ask again under a new name");
    /// A hold cannot be passed on to an owner that holds.
    pub(crate) const ALREADY_HELD: Self = Self::Fixed("ERR newowner holds this lock already");
    /// The owner holds some of the keys that it asks for together, or not all of them by one token.
    pub(crate) const HOLDS_ONE: Self = Self::Fixed(
        "ERR the owner holds one of these keys: LOCK.MACQUIRE is for an owner that holds none of them, or all of \
         them for writing by one token",
    );
    /// The owner waits at one of the keys that it asks for together.
    pub(crate) const WAITS_HERE: Self = Self::Fixed(
        "ERR the owner waits at one of these keys already: only the same request by mail, for the same keys, may be \
         sent again",
    );
    /// The owner waits at the key for several keys together.
    pub(crate) const WAITS_FOR_SEVERAL: Self = Self::Fixed(
        "ERR the owner waits at this key with LOCK.MACQUIRE, and may ask for nothing else here until that is answered",
    );
    /// The slot is on its way to or from this server, key by key.
    pub(crate) const SLOT_MOVES: Self = Self::Fixed(
        "TRYAGAIN the slot of the keys is being migrated: several of its keys cannot be granted together before that \
         is done",
    );
    /// Another module changed a key while several were granted.
    pub(crate) const KEYS_CHANGED: Self = Self::Fixed(
        "TRYAGAIN another module changed one of the keys while they were granted: none is held",
    );
    /// The owner does not hold the lock by the token that it names.
    pub(crate) const NOT_HELD: Self =
        Self::Fixed("NOTHELD the owner does not hold the lock by this token");
    pub(crate) const BUG: Self = Self::Fixed("ERR internal error, see the server's log");
}

impl Error {
    /// `argument` is a token past its bound.
    pub(crate) fn too_high(
        argument: &'static str,
        got: Option<Token>,
        error: TokenTooHigh,
    ) -> Self {
        Self::TokenTooHigh {
            argument,
            bound: error.bound,
            got,
        }
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

fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(SHOWN)];
    let more = if cut.len() < bytes.len() { "..." } else { "" };
    format!("'{}{more}'", cut.escape_ascii())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(text) => f.write_str(text),
            Self::Bounds {
                argument,
                bounds,
                got,
            } => {
                write!(f, "ERR {argument} must be {bounds}, got {}", shown(got))
            }
            Self::UnknownOption(got) => {
                write!(f, "ERR syntax error: unknown option {}", shown(got))
            }
            Self::Twice(option) => write!(f, "ERR syntax error: option {option} given twice"),
            Self::NoValue(option) => write!(f, "ERR syntax error: option {option} needs a value"),
            Self::Exclusive(one, other) => {
                write!(f, "ERR syntax error: {one} and {other} exclude each other")
            }
            Self::Deadlock { keys, hidden } => {
                f.write_str("DEADLOCK the wait would close a cycle of waits, through the keys")?;
                keys.iter()
                    .try_for_each(|key| write!(f, " {}", shown(key)))?;
                match hidden {
                    0 => Ok(()),
                    hidden => write!(f, " and {hidden} that your ACL hides"),
                }
            }
            Self::MaxWaiters(max) => write!(
                f,
                "MAXWAITERS {max} requests are blocked on this server already (lock.max-waiters)"
            ),
            Self::MaxQueued(max) => write!(
                f,
                "MAXWAITERS {max} requests, letters and boxes are on this server already (lock.max-queued)"
            ),
            Self::BoxFull(max) => write!(
                f,
                "MAXWAITERS {max} requests and letters are in this box already (a tenth of lock.max-queued)"
            ),
            Self::Needs(option, others) => {
                write!(f, "ERR syntax error: option {option} needs {others}")
            }
            Self::TryAgain(left) => write!(
                f,
                "TRYAGAIN another primary may still be granting: nothing is renewed for {left} ms"
            ),
            Self::NotGranting(left) => write!(
                f,
                "TRYAGAIN an owner unknown to this server may hold: nothing is granted for {left} ms"
            ),
            Self::NotInside(command) => {
                write!(f, "ERR {command} is not allowed inside LOCK.GUARD")
            }
            Self::UnknownCommand(got) => write!(f, "ERR unknown command {}", shown(got)),
            Self::Unblocked(why) => write!(f, "UNBLOCKED {why}"),
            Self::TokenTooHigh {
                argument,
                bound,
                got,
            } => {
                let (bound, got) = (bound.get(), got.map_or(0, Token::get));
                write!(
                    f,
                    "ERR {argument} must be at most {bound} now (the last token, or one hour \
                     ahead of the clock), got '{got}'"
                )
            }
            Self::KeyTwice(key) => write!(f, "ERR key {} is named twice", shown(key)),
            Self::Internal(command) => write!(
                f,
                "ERR {command} is internal: only the primary and the AOF may send it"
            ),
            Self::BadEffect(why) => write!(f, "ERR LOCK.APPLY: the effect is refused: {why}"),
        }
    }
}
