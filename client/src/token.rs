//! Fencing tokens.

use std::fmt;

/// A fencing token: larger than every token granted before, on this server or over this quorum.
///
/// Hand it to whatever the lock protects, and have it refuse a token smaller than the largest it has seen: then a holder
/// whose lease ran out while it was paused cannot overwrite the work of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    pub(crate) fn new(value: u64) -> Token {
        Token(value)
    }

    /// The number, positive and below 2^53.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> u64 {
        token.0
    }
}
