//! Guards: a lock that is held, for as long as that may be believed.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::{self, Wait};
use crate::clock::BootInstant;
use crate::error::{Error, Loss};
use crate::hold::{Hold, Terms};
use crate::lease::Lease;
use crate::mode::Mode;
use crate::release::{self, Part, Released};
use crate::renew::{self, Outcome};
use crate::token::Token;

/// A lock that is held.
///
/// It is renewed in the background at a third of its lease, unless that was turned off, and believed in until its
/// [`deadline`](Held::deadline). Where that passes without a confirmed renewal, or the server says that the lock is gone,
/// the guard is *lost*, and stays lost: [`is_valid`](Held::is_valid) says so, and [`lost`](Held::lost) resolves.
///
/// Dropping a guard releases the lock in the background, inside a runtime or not. [`release`](Guard::release) tells
/// whether it was still held.
///
/// A guard dereferences to [`Held`], which can be cloned and given to whoever works under the lock.
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard {
    held: Held,
    renews: bool,
    released: bool,
}

/// A view of a lock that is held: what to check, and what to hand on. It does not keep the lock.
#[derive(Clone)]
pub struct Held {
    hold: Arc<Hold>,
    mode: Mode,
}

impl Held {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.hold.key
    }

    /// The owner's name as the server knows it.
    pub fn owner(&self) -> &[u8] {
        &self.hold.owner
    }

    /// How the lock is held.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The fencing token: larger than that of every earlier grant. An upgrade brings a new one.
    pub fn token(&self) -> Token {
        self.hold.state().token
    }

    /// Until when the lock may be believed to be held, if it is not renewed again: the moment the last confirmed request
    /// was *sent*, plus the lease, minus a hundredth of it and 2 ms for clocks that run apart.
    pub fn deadline(&self) -> BootInstant {
        self.hold.state().deadline
    }

    /// Whether the lock may be believed to be held now. Once `false`, always `false`.
    ///
    /// A process that was stopped, or a machine that was suspended, for longer than the lease sees `false` at once: the
    /// clock is looked at here, and it does not stand still meanwhile. Between this answer and what is done with it,
    /// time may pass all the same; that is what the [`token`](Held::token) is for.
    pub fn is_valid(&self) -> bool {
        self.hold.loss().is_none()
    }

    /// Why the lock is lost, or `None` while it is not.
    pub fn loss(&self) -> Option<Loss> {
        self.hold.loss()
    }

    /// Waits until the lock is lost or released; at the deadline at the latest.
    ///
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
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + Sync + use<> {
        let hold = self.hold.clone();
        async move {
            let mut over = hold.watch();
            loop {
                if let Some(loss) = hold.loss() {
                    return loss;
                }
                if over.changed().await.is_err() {
                    return Loss::Released;
                }
            }
        }
    }
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
    pub fn held(&self) -> Held {
        self.held.clone()
    }

    /// Renews the lock now, by its lease. Needed only where renewal in the background was turned off.
    ///
    /// # Errors
    /// [`Error::Lost`] if it is known to be lost, [`Error::NotHeld`] if the server says so (it is lost from then on);
    /// [`Error::Connection`] or [`Error::NoQuorum`] if that cannot be found out: the deadline stays as it was.
    pub async fn renew(&self) -> Result<(), Error> {
        let lease = self.held.hold.state().lease;
        self.renew_by(lease).await
    }

    /// Renews the lock now, until at least `lease` from now. A renewal never shortens a lease.
    ///
    /// # Errors
    /// As for [`renew`](Guard::renew), and [`Error::Invalid`] for a lease below a millisecond.
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
    /// Dropping the future does not stop the release.
    ///
    /// # Errors
    /// [`Error::Connection`] or [`Error::NoQuorum`] if the servers did not answer: the release is tried again in the
    /// background until the lease is over. On one server, an [`Owner`](crate::Owner) that was named holds the key for
    /// so long ([`Error::AlreadyHeld`]).
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
    pub async fn upgrade(&mut self) -> Result<(), Error> {
        self.change(Mode::Write, Wait::Forever).await
    }

    /// Like [`upgrade`](Guard::upgrade), but waits up to `limit`; zero does not wait at all.
    ///
    /// # Errors
    /// As for [`upgrade`](Guard::upgrade), and [`Error::Busy`].
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

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f.debug_struct("Held"))
    }
}

impl Held {
    fn write(&self, mut out: fmt::DebugStruct<'_, '_>) -> fmt::Result {
        out.field("key", &String::from_utf8_lossy(self.key()))
            .field("owner", &String::from_utf8_lossy(self.owner()))
            .field("mode", &self.mode)
            .field("token", &self.token())
            .field("remaining", &self.deadline().remaining())
            .field("loss", &self.loss())
            .finish()
    }
}
