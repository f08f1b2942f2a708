//! Fencing tokens.

use std::fmt;

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
    /// # Examples
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
