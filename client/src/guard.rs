//! Guards: a lock that is held, for as long as that may be believed.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{self, Wait};
use crate::error::{Error, Loss};
use crate::held::Held;
use crate::hold::{Hold, Terms};
use crate::lease::Lease;
use crate::mode::Mode;
use crate::release::{self, Part, Released};
use crate::renew::{self, Outcome};

/// A lock that is held.
///
/// It is renewed in the background at a third of its lease, unless that was turned off, and believed in until its
/// [`deadline`](Held::deadline). Where that passes without a confirmed renewal, or the server says that the lock is gone,
/// the guard is *lost*, and stays lost: [`is_valid`](Held::is_valid) says so, and [`lost`](Held::lost) resolves.
///
/// Dropping a guard releases the lock in the background, inside a runtime or not. [`release`](Guard::release) tells
/// whether it was still held, and waits until it is released: where the process ends, or the runtime is dropped, right
/// after the guard, the release may never be sent, and the lock stays taken until its lease is over.
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
    released: bool,
}

impl Guard {
    pub(crate) fn new(hold: Arc<Hold>, terms: Terms) -> Guard {
        Guard {
            held: Held {
                hold,
                mode: terms.mode,
            },
            renews: terms.renew,
            released: false,
        }
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
    /// Dropping the future does not stop the renewal.
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
        let lease = self.held.hold.state().lease;
        self.renew_by(lease).await
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
        self.renew_by(Lease::new(lease)?).await
    }

    async fn renew_by(&self, lease: Lease) -> Result<(), Error> {
        let hold = &self.held.hold;
        let lost = || Error::Lost(hold.loss().unwrap_or(Loss::HoldLimit));
        let request = renew::request_for(hold, lease).ok_or_else(lost)?;
        let core = hold.core.clone();
        let task = hold.core.runtime.spawn(async move {
            let outcome = renew::renew(&core, vec![request]).await.pop();
            outcome.map(|(hold, outcome)| {
                core.renewal.watch(&hold);
                outcome
            })
        });
        match task.await {
            Ok(Some(Outcome::Renewed)) if self.is_valid() => Ok(()),
            Ok(Some(Outcome::Renewed)) => Err(lost()),
            Ok(Some(Outcome::Denied)) => Err(Error::NotHeld),
            Ok(Some(Outcome::Failed(error))) => Err(error),
            Ok(None) | Err(_) => Err(Error::Closed),
        }
    }

    /// Gives the lock back and tells whether it was still held. Allowed whatever is believed about it.
    ///
    /// # Errors
    /// [`Error::Connection`] or [`Error::NoQuorum`] if the servers did not answer: the release is tried again in the
    /// background until the lease is over. On one server, an [`Owner`](crate::Owner) that was named and asks for the key
    /// again waits for so long.
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
        self.give_back().await.map_err(|_| Error::Closed)?
    }

    fn give_back(&mut self) -> tokio::sync::oneshot::Receiver<Result<Released, Error>> {
        self.released = true;
        release::start(Part {
            hold: self.held.hold.clone(),
            mode: self.held.mode,
            renews: self.renews,
        })
    }

    /// Makes a reader a writer, ahead of everybody who queues, as soon as the other readers have left. The token changes.
    ///
    /// Dropped or failed, it leaves the guard the reader that it was; only if the servers fall silent after the grant,
    /// while the read hold is given back, it is a writer already and this an error all the same:
    /// [`mode`](Held::mode) tells. The read hold is renewed while it waits. Two readers who both ask wait for each
    /// other, so the second is told [`Error::Deadlock`]: release, and take the lock for writing.
    ///
    /// # Errors
    /// As for [`Lock::acquire`](crate::Lock::acquire), [`Error::Lost`] and [`Error::NotHeld`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves the guard the reader that it was, unless the servers have granted it already.
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
    pub async fn upgrade(&mut self) -> Result<(), Error> {
        self.change(Mode::Write, Wait::Forever).await
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
    /// use mortise_client::{Error, Mode};
    /// use std::time::Duration;
    ///
    /// let lock = client.lock("a");
    /// let (mut guard, other) = (lock.read().await?, lock.read().await?);
    /// let refused = guard.upgrade_within(Duration::from_millis(10)).await;
    /// assert!(matches!(refused, Err(Error::Busy { .. })));
    /// assert_eq!(guard.mode(), Mode::Read);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn upgrade_within(&mut self, limit: Duration) -> Result<(), Error> {
        let wait = if limit.is_zero() {
            Wait::No
        } else {
            Wait::Limit(limit)
        };
        self.change(Mode::Write, wait).await
    }

    /// Makes a writer a reader without letting another writer in between; readers who queue get in at once.
    ///
    /// # Errors
    /// [`Error::Lost`] or [`Error::NotHeld`] if the lock is not held any more; [`Error::Connection`] or
    /// [`Error::NoQuorum`] if the servers do not answer. Where [`mode`](Held::mode) is read by then, the write hold is
    /// given back in the background, and until that has come through, nobody else gets in.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release of the write hold.
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
    pub async fn downgrade(&mut self) -> Result<(), Error> {
        self.change(Mode::Read, Wait::No).await
    }

    async fn change(&mut self, mode: Mode, wait: Wait) -> Result<(), Error> {
        if self.mode() == mode {
            return self.loss().map_or(Ok(()), |loss| Err(Error::Lost(loss)));
        }
        let hold = &self.held.hold;
        let (lease, max_hold) = {
            let state = hold.state();
            (state.lease, None)
        };
        let changed = acquire::submit(acquire::Request {
            core: hold.core.clone(),
            key: hold.key.clone(),
            owner: hold.owner.clone(),
            slot: hold.slot.clone(),
            terms: Terms {
                mode,
                lease,
                renew: self.renews,
                max_hold,
            },
            wait,
            reentrant: true,
            part_of: Some(hold.clone()),
        })
        .await?;
        let mut old = std::mem::replace(self, changed);
        // Both modes are held now. What is left of the old one is given back in any case, waited for or not.
        let released = old.give_back().await.map_err(|_| Error::Closed)??;
        match (self.loss(), released) {
            (Some(loss), _) => Err(Error::Lost(loss)),
            (None, Released::Lost) => Err(Error::NotHeld),
            (None, _) => Ok(()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.released {
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
        self.held.write(f.debug_struct("Guard"))
    }
}
