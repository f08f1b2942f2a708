//! Why a hold ended.

/// Why a guard lost its lock.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// use mortise_client::Loss;
///
/// let guard = client.lock("a").acquire().await?;
/// let held = guard.held();
/// guard.release().await?;
/// assert_eq!(held.loss(), Some(Loss::Released));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// The lease may have run out: no renewal was confirmed in time, or none was asked for.
    #[error("its lease may have run out")]
    Expired,
    /// The server said that the owner no longer holds it: the key was deleted, or the lease ran out there.
    #[error("the server says that this owner no longer holds it")]
    Denied,
    /// The limit on the total time of the hold was reached: [`Lock::max_hold`](crate::Lock::max_hold).
    #[error("it was held for as long as it may be")]
    HoldLimit,
    /// It was passed on to another name, or is about to be: [`Guard::pass_to`](crate::Guard::pass_to).
    #[error("it was passed on")]
    Passed,
    /// The guard was given back, so there is nothing left to lose.
    #[error("it was released")]
    Released,
    /// The outcome of a request that changes it (an upgrade, a downgrade, a release) is not known: it was not answered, or
    /// cancelled. A hold whose state is unknown is not kept.
    #[error("the outcome of its change or release is unknown")]
    Unknown,
}

impl Loss {
    /// Whether the holder has ended the hold itself.
    #[cfg(feature = "metrics")]
    pub(crate) fn is_intended(self) -> bool {
        matches!(self, Loss::Released | Loss::Passed)
    }
}
