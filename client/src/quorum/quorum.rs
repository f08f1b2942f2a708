//! A lock over several independent servers.

use std::fmt;
use std::sync::Arc;

use crate::lock::client::{Locks, sealed};
use crate::lock::{Core, Lock, Source};
use crate::quorum::Servers;
use crate::wire::{LockInfo, ServerAnswer, TopEntry};

/// A quorum of independent servers: the owner that holds a lock on a majority holds it. This is
/// Redlock, with fencing.
///
/// The servers are 3 or 5 primaries that know nothing of each other, each with the module and with `lock.grace`
/// at the longest lease in use, so that a server which restarts without its data takes no part until every lease that it may
/// have forgotten is over. A minority may be down, paused or cut off, and costs nothing once a majority has answered.
///
/// [`Guard::token`](crate::Held::token) grows from one grant to the next over all majorities. Locks are taken, kept and
/// released as on one server, through the same [`Lock`]. A quorum finds no deadlocks between
/// owners, and has no semaphores, because they would not be safe: [why](crate#what-it-does-not-do).
///
/// Tokens are made of the servers' clocks, so these have to agree: a server whose token is more than a second ahead of the
/// others' counts as failed ([`NodeReason::Ahead`](crate::NodeReason::Ahead)), and if only two answer, nobody can tell which of them is right.
/// If servers may restart without their data, `lock.grace` is also two seconds at least: tokens may be ahead of some clocks for a second.
///
/// While it acquires, the client reads the servers' clocks every ten seconds: it sends `INFO server` together with a request. From the
/// clocks it knows which token all servers can grant in one round trip. If its user may not run `INFO`, acquiring takes two.
///
/// All clients of the same locks must name the servers in the same order: that is the order in which they queue.
///
/// ```no_run
/// # async fn example() -> Result<(), mortise_client::Error> {
/// use mortise_client::Quorum;
///
/// let quorum = Quorum::connect(["redis://a/", "redis://b/", "redis://c/"]).await?;
/// let guard = quorum.lock("ledger").acquire().await?;
/// println!("write with fencing token {}", guard.token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[doc(alias = "redlock")]
pub struct Quorum(pub(super) Arc<Servers>);

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Quorum").field(&self.0).finish()
    }
}

impl Quorum {
    /// The lock with this key. Nothing is sent yet.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::{Error, Quorum};
    ///
    /// async fn write(quorum: &Quorum) -> Result<(), Error> {
    ///     quorum.lock("ledger").run(|held| async move { Ok(println!("with fence {}", held.token())) }).await
    /// }
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        self.lock_of(key.as_ref())
    }

    /// Who holds a lock and who waits for it, at most 100 of each, as each server sees it, in their order. An owner's name
    /// has another ending in each round; the owner that a majority names holds the lock.
    ///
    /// ```no_run
    /// # async fn example(quorum: mortise_client::Quorum) {
    /// for there in quorum.info("ledger").await {
    ///     println!("{}: {:?}", there.server, there.answer);
    /// }
    /// # }
    /// ```
    pub async fn info(&self, key: impl AsRef<[u8]>) -> Vec<ServerAnswer<Option<LockInfo>>> {
        self.info_on_each(key.as_ref()).await
    }

    /// The locks with the most waiters now on each server, at most `count`, the longest queue first.
    ///
    /// ```no_run
    /// # async fn example(quorum: mortise_client::Quorum) {
    /// let on_the_first = quorum.top(10).await.remove(0);
    /// println!("{}: {:?}", on_the_first.server, on_the_first.answer);
    /// # }
    /// ```
    pub async fn top(&self, count: usize) -> Vec<ServerAnswer<Vec<TopEntry>>> {
        self.top_on_each(count).await
    }

    /// Releases what guards still hold, and waits until the servers have answered; as
    /// [`Client::close`](crate::Client::close).
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example(quorum: mortise_client::Quorum) {
    /// quorum.close().await;
    /// # }
    /// ```
    pub async fn close(&self) {
        self.0.close().await;
    }
}

impl Locks for Quorum {}

impl sealed::Locks for Quorum {
    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn source(&self) -> Arc<dyn Source> {
        self.0.clone()
    }

    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn servers(&self) -> &[Arc<Core>] {
        &self.0.all
    }
}
