//! The two ways to hold a lock.

use std::fmt;

/// How a lock is held.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// use mortise_client::Mode;
///
/// let guard = client.lock("report").read().await?;
/// assert_eq!(guard.mode(), Mode::Read);
/// assert_eq!(guard.mode().to_string(), "read");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone.
    Write,
    /// Together with other readers.
    Read,
}

impl Mode {
    /// The command that takes the lock in this mode.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Mode::Write => "LOCK.ACQUIRE",
            Mode::Read => "LOCK.RLOCK",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Write => "write",
            Mode::Read => "read",
        })
    }
}
