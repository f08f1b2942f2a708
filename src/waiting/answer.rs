//! What a waiter is answered.

use mortise_core::Token;

use crate::error::Error;

/// What a waiter's client is answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Token(Token),
    Null,
    Error(Error),
}
