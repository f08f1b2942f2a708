//! Guards: a held lock, until it is released or lost. Each is a part of a hold.

use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select};

use crate::lock::server_hold::on_one_server;
use crate::lock::{Held, Hold, ServerHold, Share, trace};
use crate::value::{BootInstant, ChangeFailed, Error, Lease, Mode};

/// A lock that is held.
///
/// It is renewed in the background at a third of its lease, unless that was turned off, and counts as held until its
/// [`deadline`](Held::deadline). If that passes without a confirmed renewal, or the server says that the lock is gone,
/// the guard is *lost*, and stays lost: [`is_valid`](Held::is_valid) says so, and [`lost`](Held::lost) resolves.
///
/// Dropping a guard releases the lock in the background, inside a runtime or not. [`release`](Guard::release) waits until
/// it is released, and fails if it was lost. If the process ends, or the runtime is dropped, right after
/// the guard, the release may never be sent, and the lock stays taken until its lease is over. So call
/// [`Client::close`](crate::Client::close) at the end of `main`, which sends pending releases.
///
/// A guard dereferences to [`Held`], which can be cloned and given to the work under the lock.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// let guard = client.lock("a").acquire().await?;
/// assert!(guard.is_valid());
/// println!("believed in for another {:?}", guard.deadline().remaining());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard {
    held: Held,
    renews: bool,
    is_given_back: bool,
}

impl Guard {
    /// One that shares a hold, which ends at `cap` at the latest.
    pub(crate) fn of(
        hold: Arc<dyn Hold>,
        share: Share,
        cap: Option<BootInstant>,
    ) -> Result<Guard, Error> {
        hold.share(share, cap)?;
        let Share { mode, renews } = share;
        Ok(Guard {
            held: Held { hold, mode },
            renews,
            is_given_back: false,
        })
    }

    fn shares(&self) -> Share {
        Share {
            mode: self.held.mode,
            renews: self.renews,
        }
    }

    fn set_mode(&mut self, hold: &ServerHold, mode: Mode) {
        let renews = self.renews;
        let share = Share { mode, renews };
        hold.reshare(self.shares(), share);
        self.held.mode = mode;
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn answer_limit(&self) -> Duration {
        self.hold.answer_limit()
    }

    /// Its hold, if it is on one server.
    pub(crate) fn on_one_server(&self) -> Result<Arc<ServerHold>, Error> {
        on_one_server(&self.hold)
    }

    /// A view of this lock for others to check.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// let held = guard.held();
    /// assert_eq!(held.token(), guard.token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// Renews the lock now, by its lease. Needed only if renewal in the background was turned off.
    ///
    /// # Errors
    /// [`Error::Lost`] if it is known to be lost, [`Error::NotHeld`] if the server says so (it is lost from then on);
    /// [`Error::Connection`] or [`Error::NoQuorum`] if that cannot be found out: the deadline stays as it was.
    ///
    /// # Cancel safety
    /// Dropped, it may have renewed the lock on the server, but the deadline stays.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").auto_renew(false).acquire().await?;
    /// let before = guard.deadline();
    /// guard.renew().await?;
    /// assert!(guard.deadline() >= before);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn renew(&self) -> Result<(), Error> {
        self.hold.renew(None).await
    }

    /// Renews the lock now, until at least `lease` from now. A renewal never shortens a lease.
    ///
    /// # Errors
    /// As for [`renew`](Guard::renew), and [`Error::Invalid`] for a lease below a millisecond.
    ///
    /// # Cancel safety
    /// As for [`renew`](Guard::renew).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use std::time::Duration;
    ///
    /// let guard = client.lock("a").acquire().await?;
    /// guard.renew_for(Duration::from_secs(60)).await?;
    /// assert!(guard.deadline().remaining() > Duration::from_secs(30));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn renew_for(&self, lease: Duration) -> Result<(), Error> {
        self.hold.renew(Some(Lease::new(lease)?)).await
    }

    /// Releases the lock. It succeeds if the lock was held until then, so that the work under it
    /// was done alone.
    ///
    /// # Errors
    /// [`Error::Lost`] if it was lost before: others may have had it meanwhile. [`Error::Connection`] or [`Error::NoQuorum`]
    /// if the servers did not answer: the release is repeated in the background until the lease is over.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let guard = client.lock("a").acquire().await?;
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(mut self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.give_back()
    }

    fn give_back(&mut self) -> BoxFuture<'static, Result<(), Error>> {
        self.is_given_back = true;
        self.held.hold.clone().unshare(self.shares())
    }

    /// Runs `work` until it ends or the lock is lost, and releases.
    pub(crate) async fn run<T, E, F>(self, work: impl FnOnce(Held) -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let work = trace::working(self.key(), self.token(), work(self.held()));
        let done = match select(pin!(work), self.lost()).await {
            Either::Left((Ok(value), _)) => self.check().map(|_| value).map_err(E::from),
            Either::Left((failed, _)) => failed,
            Either::Right((loss, _)) => Err(Error::Lost(loss).into()),
        };
        match self.release().await {
            Err(Error::Lost(loss)) if done.is_ok() => Err(Error::Lost(loss).into()),
            // Held when the work ended; that the release has not been answered takes nothing from that.
            _ => done,
        }
    }

    /// Makes a reader a writer, ahead of all in the queue, as soon as the other readers have left. The token changes.
    ///
    /// The read hold is renewed while it waits. Two readers that both ask wait for each other, so the second gets
    /// [`Error::Deadlock`]: release, and take the lock for writing.
    ///
    /// # Errors
    /// [`Error::NotOverQuorum`]: on one server only. As for [`Lock::acquire`](crate::Lock::acquire), [`Error::Lost`] and
    /// [`Error::NotHeld`]. [`ChangeFailed::left`] says
    /// what is left: the reader, if the servers have refused; nothing when the outcome is unknown
    /// ([`Loss::Unknown`](crate::Loss::Unknown)).
    ///
    /// # Cancel safety
    /// Dropped while its outcome is unknown, it ends the hold: the guard is lost.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let mut guard = client.lock("a").read().await?;
    /// let token = guard.token();
    /// guard.upgrade().await?;
    /// assert!(guard.token() > token);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn upgrade(&mut self) -> Result<(), ChangeFailed> {
        self.become_writer(None).await
    }

    /// Like [`upgrade`](Guard::upgrade), but waits up to `limit`; zero does not wait at all.
    ///
    /// # Errors
    /// As for [`upgrade`](Guard::upgrade), and [`Error::Busy`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Mode;
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("a");
    /// let (mut guard, other) = (lock.read().await?, lock.read().await?);
    /// let refused = guard.upgrade_within(Duration::from_millis(10)).await.unwrap_err();
    /// assert!(refused.error.is_busy());
    /// assert_eq!(refused.left, Some(Mode::Read));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn upgrade_within(&mut self, limit: Duration) -> Result<(), ChangeFailed> {
        self.become_writer(Some(limit)).await
    }

    /// Its hold, if that can be upgraded and downgraded. Otherwise it stays as it is.
    fn changeable(&self) -> Result<Arc<ServerHold>, ChangeFailed> {
        self.on_one_server().map_err(|error| ChangeFailed {
            error,
            left: self.is_valid().then_some(self.mode),
        })
    }

    async fn become_writer(&mut self, wait: Option<Duration>) -> Result<(), ChangeFailed> {
        let hold = self.changeable()?;
        hold.upgrade(wait).await?;
        self.set_mode(&hold, Mode::Write);
        Ok(())
    }

    /// Makes a writer a reader, with no other writer in between; readers in the queue are granted
    /// at once.
    ///
    /// # Errors
    /// [`Error::NotOverQuorum`]: on one server only. [`Error::Lost`] or [`Error::NotHeld`] if the
    /// lock is no longer held; [`Error::Refused`] or [`Error::Connection`] if the server does not
    /// do it: [`ChangeFailed::left`] says whether it writes still, or is lost.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the downgrade; the guard is a reader from its first poll.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let lock = client.lock("a");
    /// let mut guard = lock.write().await?;
    /// guard.downgrade().await?;
    /// assert!(lock.try_read().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn downgrade(&mut self) -> Result<(), ChangeFailed> {
        let hold = self.changeable()?;
        self.check()?;
        if self.mode == Mode::Read {
            return Ok(());
        }
        // Before anything is sent: what is believed is never more than what is held.
        self.set_mode(&hold, Mode::Read);
        let Err(error) = hold.downgrade().await else {
            return Ok(self.check().map(drop)?);
        };
        let left = self.is_valid().then_some(Mode::Write);
        if let Some(mode) = left {
            self.set_mode(&hold, mode);
        }
        Err(ChangeFailed { error, left })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_given_back {
            drop(self.give_back());
        }
    }
}

impl Deref for Guard {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f.debug_struct("Guard"))
    }
}
