//! Fencing tokens.

use std::fmt;

use crate::error::Error;

/// Tokens are below that: every language that reads JSON has these numbers.
const LIMIT: u64 = 1 << 53;

/// A fencing token: larger than every token granted before, on this server or over this quorum.
///
/// Hand it to whatever the lock protects, and have it refuse a token smaller than the largest it has seen: then a holder
/// whose lease ran out while it was paused cannot overwrite the work of the next one.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// let first = client.lock("a").acquire().await?;
/// let second = client.lock("b").acquire().await?;
/// assert!(second.token() > first.token());
/// // In a database: UPDATE … SET value = $1, fence = $2 WHERE id = $3 AND fence <= $2
/// let fence: u64 = second.token().into();
/// // Elsewhere, out of a message or a column:
/// assert_eq!(mortise_client::Token::try_from(fence)?, second.token());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    pub(crate) fn new(value: u64) -> Token {
        Token(value)
    }

    /// The number, positive and below 2^53.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert_eq!(guard.token().get().to_string(), guard.token().to_string());
    /// # Ok(())
    /// # }
    /// ```
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

impl TryFrom<u64> for Token {
    type Error = Error;

    /// [`Error::Invalid`] for what no server grants: zero, and 2^53 and more.
    fn try_from(number: u64) -> Result<Token, Error> {
        match number {
            1..LIMIT => Ok(Token(number)),
            _ => Err(Error::Invalid(format!(
                "a fencing token is positive and below 2^53, not {number}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_no_server_grants_is_refused_as_a_token() {
        assert_eq!(
            Token::try_from(LIMIT - 1).map(u64::from).ok(),
            Some(LIMIT - 1)
        );
        for number in [0, LIMIT, u64::MAX] {
            assert!(matches!(Token::try_from(number), Err(Error::Invalid(_))));
        }
    }
}
