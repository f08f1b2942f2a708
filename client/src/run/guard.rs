//! Guards: a lock that is held, for as long as that may be believed. Each is a part of a hold.

use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};

use crate::run::{Held, Hold, change};
use crate::value::{BootInstant, ChangeFailed, Error, Lease, Loss, Mode, Released};

/// A lock that is held.
///
/// It is renewed in the background at a third of its lease, unless that was turned off, and believed in until its
/// [`deadline`](Held::deadline). Where that passes without a confirmed renewal, or the server says that the lock is gone,
/// the guard is *lost*, and stays lost: [`is_valid`](Held::is_valid) says so, and [`lost`](Held::lost) resolves.
///
/// Dropping a guard releases the lock in the background, inside a runtime or not. [`release`](Guard::release) tells
/// whether it was still held, and waits until it is released. Where the process ends, or the runtime is dropped, right after
/// the guard, the release may never be sent, and the lock stays taken until its lease is over: so call
/// [`Client::close`](crate::Client::close) at the end of `main`, which says all that is still to be said.
///
/// A guard dereferences to [`Held`], which can be cloned and given to whoever works under the lock.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// let guard = client.lock("a").acquire().await?;
/// assert!(guard.is_valid());
/// println!("believed in for another {:?}", guard.deadline().remaining());
/// assert!(guard.release().await?.was_held());
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard {
    held: Held,
    renews: bool,
    is_released: bool,
}

impl Guard {
    /// One of a hold, which ends by then.
    pub(crate) fn of(
        hold: &Arc<Hold>,
        (mode, renews): (Mode, bool),
        cap: Option<BootInstant>,
    ) -> Result<Guard, Error> {
        hold.with(|state| {
            state.belief.check(BootInstant::now())?;
            state.guards += 1;
            state.writers += u32::from(mode == Mode::Write);
            state.renewing += u32::from(renews);
            state.belief.limit(cap);
            Ok::<_, Error>(())
        })?;
        let hold = hold.clone();
        Ok(Guard {
            held: Held { hold, mode },
            renews,
            is_released: false,
        })
    }

    /// Takes it off its hold; `true` if it was the last one.
    fn take_off(&mut self) -> bool {
        self.is_released = true;
        self.hold.with(|state| {
            state.guards -= 1;
            state.renewing -= u32::from(self.renews);
            state.writers -= u32::from(self.mode == Mode::Write);
            state.guards == 0
        })
    }

    fn set_mode(&mut self, mode: Mode) {
        self.held.mode = mode;
        self.hold.with(|state| match mode {
            Mode::Write => state.writers += 1,
            Mode::Read => state.writers -= 1,
        });
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn answer_limit(&self) -> Duration {
        self.hold.core.limits.answer
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

    /// Renews the lock now, by its lease. Needed only where renewal in the background was turned off.
    ///
    /// # Errors
    /// [`Error::Lost`] if it is known to be lost, [`Error::NotHeld`] if the server says so (it is lost from then on);
    /// [`Error::Connection`] or [`Error::NoQuorum`] if that cannot be found out: the deadline stays as it was.
    ///
    /// # Cancel safety
    /// Dropped, it may have renewed the lock, which is not believed then.
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
        change::renew(&self.hold, None).await
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
        change::renew(&self.hold, Some(Lease::new(lease)?)).await
    }

    /// Gives the lock back and tells whether it was still held. Allowed whatever is believed about it.
    ///
    /// # Errors
    /// [`Error::Connection`] or [`Error::NoQuorum`] if the servers did not answer: the release is tried again in the
    /// background until the lease is over.
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
    /// assert!(guard.release().await?.was_held());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<Released, Error> {
        if self.take_off() {
            return change::release(&self.hold).await;
        }
        let changed = change::downgrade(&self.hold).await;
        match self.loss() {
            Some(_) => Ok(Released::Lost),
            None => changed.map(|()| Released::Held),
        }
    }

    /// Runs `work` until it ends or the lock is lost, and releases.
    pub(crate) async fn run<T, E, F>(self, work: impl FnOnce(Held) -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let done = match select(pin!(work(self.held())), self.lost()).await {
            Either::Left((Ok(value), _)) => self.check().map(|_| value).map_err(E::from),
            Either::Left((failed, _)) => failed,
            Either::Right((loss, _)) => Err(Error::Lost(loss).into()),
        };
        // Held when the work ended; that the release has not been answered takes nothing from that.
        match self.release().await {
            Ok(Released::Lost) if done.is_ok() => Err(Error::Lost(Loss::Denied).into()),
            _ => done,
        }
    }

    /// Makes a reader a writer, ahead of everybody who queues, as soon as the other readers have left. The token changes.
    ///
    /// The read hold is renewed while it waits. Two readers who both ask wait for each other, so the second is told
    /// [`Error::Deadlock`]: release, and take the lock for writing.
    ///
    /// # Errors
    /// As for [`Lock::acquire`](crate::Lock::acquire), [`Error::Lost`] and [`Error::NotHeld`]. [`ChangeFailed::left`] says
    /// what is left: the reader that it was, where the servers have refused; nothing where it is not known what became of
    /// the request ([`Loss::Unknown`](crate::Loss::Unknown)).
    ///
    /// # Cancel safety
    /// Dropped while nobody knows whether the servers have granted it, it ends the hold: the guard is lost.
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

    async fn become_writer(&mut self, wait: Option<Duration>) -> Result<(), ChangeFailed> {
        let hold = self.hold.clone();
        let _turn = hold.turn.lock().await;
        change::upgrade(&hold, wait).await?;
        if self.mode == Mode::Read {
            self.set_mode(Mode::Write);
        }
        Ok(())
    }

    /// Makes a writer a reader without letting another writer in between; readers who queue get in at once.
    ///
    /// # Errors
    /// [`Error::Lost`] or [`Error::NotHeld`] if the lock is not held any more; [`Error::Refused`], [`Error::Connection`] or
    /// [`Error::NoQuorum`] if the servers do not do it: [`ChangeFailed::left`] says whether it writes still, or is lost.
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
        self.check()?;
        if self.mode == Mode::Read {
            return Ok(());
        }
        // Before anything is sent: what is believed is never more than what is held.
        self.set_mode(Mode::Read);
        let Err(error) = change::downgrade(&self.hold).await else {
            return Ok(self.check().map(drop)?);
        };
        let left = self.is_valid().then_some(Mode::Write);
        if let Some(mode) = left {
            self.set_mode(mode);
        }
        Err(ChangeFailed { error, left })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        match self.take_off() {
            true => drop(self.hold.release()),
            false => drop(change::downgrade(&self.hold)),
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
