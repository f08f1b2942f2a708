//! A view of a held lock, for the work under it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::lock::Hold;
use crate::lock::hold::Lost;
use crate::value::{BootInstant, Error, Loss, Mode, Token};

/// A view of a lock that is held: what to check, and what to hand on. It does not keep the lock.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// let guard = client.lock("a").acquire().await?;
/// let held = guard.held();
/// let worker = tokio::spawn(async move {
///     if held.is_valid() { /* … write with held.token() … */ }
/// });
/// # worker.await.expect("no panic");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Held {
    pub(crate) hold: Arc<dyn Hold>,
    pub(crate) mode: Mode,
}

impl Held {
    /// The key.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert_eq!(guard.key(), b"a");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        &self.hold.name().key
    }

    /// The owner's name as the server knows it.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert!(guard.owner().len() > 36, "the UUID of the client or task, and a number");
    /// # Ok(())
    /// # }
    /// ```
    pub fn owner(&self) -> &[u8] {
        &self.hold.name().owner
    }

    /// How the lock is held.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert_eq!(guard.mode(), mortise_client::Mode::Write);
    /// # Ok(())
    /// # }
    /// ```
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The fencing token: larger than that of every earlier grant. An upgrade brings a new one.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// println!("UPDATE … WHERE fence <= {}", guard.token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn token(&self) -> Token {
        self.hold.token()
    }

    /// Until when the lock counts as held, if it is not renewed again: the moment the last confirmed request
    /// was *sent*, plus the lease, minus a hundredth of it and 2 ms for clocks that run at different speeds.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use std::time::Duration;
    ///
    /// let guard = client.lock("a").lease(Duration::from_secs(10)).acquire().await?;
    /// assert!(guard.deadline().remaining() <= Duration::from_millis(10_000 - 102));
    /// # Ok(())
    /// # }
    /// ```
    pub fn deadline(&self) -> BootInstant {
        self.hold.deadline()
    }

    /// How much longer the lock counts as held, if it is not renewed again; zero once it is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use std::time::Duration;
    ///
    /// let guard = client.lock("a").lease(Duration::from_secs(10)).acquire().await?;
    /// assert!(guard.remaining() > Duration::from_secs(5));
    /// # Ok(())
    /// # }
    /// ```
    pub fn remaining(&self) -> Duration {
        match self.hold.loss() {
            Some(_) => Duration::ZERO,
            None => self.deadline().remaining(),
        }
    }

    /// Checks that the lock is still held, and returns its token, to send along with a write. Call
    /// it right before the write, because a lease is not a fence.
    ///
    /// # Errors
    /// [`Error::Lost`] if it is not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// let fence = guard.check()?;
    /// assert_eq!(fence, guard.token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self) -> Result<Token, Error> {
        match self.hold.loss() {
            Some(loss) => Err(Error::Lost(loss)),
            None => Ok(self.token()),
        }
    }

    /// Whether the lock counts as held now. Once `false`, always `false`.
    ///
    /// A process that was stopped, or a machine that was suspended, for longer than the lease sees `false` at once: it reads
    /// the clock, which does not stop meanwhile. Time may still pass between this answer and its use; that is what the
    /// [`token`](Held::token) is for.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert!(guard.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_valid(&self) -> bool {
        self.hold.loss().is_none()
    }

    /// Why the lock is lost, or `None` while it is not.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// assert_eq!(guard.loss(), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn loss(&self) -> Option<Loss> {
        self.hold.loss()
    }

    /// Waits until the lock is lost or released; at the deadline at the latest.
    ///
    /// # Cancel safety
    /// Made for `select`: the future borrows nothing and can be dropped at any time.
    ///
    /// ```no_run
    /// # async fn job() {}
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let guard = client.lock("job").acquire().await?;
    /// tokio::select! {
    ///     _ = job() => {}
    ///     loss = guard.lost() => eprintln!("stopped: {loss}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + Sync + Unpin + use<> {
        Lost::of(self.hold.clone())
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f.debug_struct("Held"))
    }
}

impl Held {
    /// For the guard, too.
    pub(crate) fn write(&self, mut out: fmt::DebugStruct<'_, '_>) -> fmt::Result {
        out.field("key", &String::from_utf8_lossy(self.key()))
            .field("owner", &String::from_utf8_lossy(self.owner()))
            .field("mode", &self.mode)
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .field("loss", &self.loss())
            .finish()
    }
}
