//! What became of a lock that was given back.

/// What a release found.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// use mortise_client::Released;
///
/// let guard = client.lock("a").acquire().await?;
/// match guard.release().await? {
///     Released::Held => {}
///     Released::Lost => eprintln!("others may have been at it too: check what was written"),
///     other => eprintln!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The lock was held until this release.
    Held,
    /// The lock was not held any more: others may have had it meanwhile.
    Lost,
    /// Released, but the answer to the first attempt was lost, so nobody knows whether it was held until then.
    Unknown,
}

impl Released {
    /// Whether the lock is known to have been held until the release.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert!(guard.release().await?.was_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn was_held(self) -> bool {
        self == Released::Held
    }
}
