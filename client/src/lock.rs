//! A lock by its key, and on what terms it is acquired.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acquire::acquire;
use crate::change::take_over;
use crate::core::Core;
use crate::error::Error;
use crate::guard::Guard;
use crate::name::{Bytes, Mode, Owner, text};
use crate::quorum::round;
use crate::request::Terms;
use crate::servers::not_over_quorum;
use crate::time::Lease;
use crate::token::Token;

/// A lock, or several that are taken together, and on what terms. Nothing is sent before one of its futures is polled.
///
/// Clone it to acquire it more than once: every acquisition has a name of its own on the server, so a clone excludes its original.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// use std::time::Duration;
///
/// let lock = client
///     .lock("stock:42")
///     .lease(Duration::from_secs(30)) // how long it stays taken if this process dies
///     .wait(Duration::from_secs(5)); // how long to queue for it
/// let guard = lock.clone().acquire().await?;
/// assert!(lock.try_acquire().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a lock is not acquired before it is asked for"]
pub struct Lock {
    core: Arc<Core>,
    lease: Duration,
    terms: Terms,
}

impl Lock {
    pub(crate) fn new(core: &Arc<Core>, keys: Vec<Bytes>) -> Lock {
        Lock {
            core: core.clone(),
            lease: core.settings.lease,
            terms: Terms {
                keys: keys.into(),
                owner: core.owner.clone(),
                mode: Mode::Write,
                lease: Lease::default(),
                wait: core.settings.wait,
                renews: true,
                max_hold: None,
                count: 1,
                of: None,
            },
        }
    }

    /// Sets how long the lock stays taken if this process dies: 10 s unless set, here or for the client. It is renewed at a third of
    /// this time. It should be more than one and a half times as long as the longest pause of the process.
    ///
    /// ```no_run
    /// # fn example(client: mortise_client::Client) {
    /// let lock = client.lock("a").lease(std::time::Duration::from_secs(30));
    /// # }
    /// ```
    pub fn lease(mut self, lease: Duration) -> Lock {
        self.lease = lease;
        self
    }

    /// Sets how long an acquisition or an upgrade waits: without limit unless set, here or for the client. Then [`Error::Busy`]
    /// says that others held the lock, or the error of the last try that it could not be asked for.
    ///
    /// ```no_run
    /// # fn example(client: mortise_client::Client) {
    /// let lock = client.lock("a").wait(std::time::Duration::from_secs(5));
    /// # }
    /// ```
    pub fn wait(mut self, limit: Duration) -> Lock {
        self.terms.wait = Some(limit);
        self
    }

    /// Sets whether guards renew their lock: they do unless set. Without, the lock is lost when its lease is over.
    ///
    /// ```no_run
    /// # fn example(client: mortise_client::Client) {
    /// let lock = client.lock("a").auto_renew(false);
    /// # }
    /// ```
    pub fn auto_renew(mut self, renews: bool) -> Lock {
        self.terms.renews = renews;
        self
    }

    /// Sets how long the lock may be held, however often it is renewed: so a holder that is stuck does not block others for ever.
    ///
    /// ```no_run
    /// # fn example(client: mortise_client::Client) {
    /// let lock = client.lock("a").max_hold(std::time::Duration::from_secs(600));
    /// # }
    /// ```
    pub fn max_hold(mut self, limit: Duration) -> Lock {
        self.terms.max_hold = Some(limit);
        self
    }

    /// Names the task that acquires the lock: the server finds deadlocks between tasks.
    ///
    /// ```
    /// # fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let task = mortise_client::Owner::named("nightly")?;
    /// let lock = client.lock("a").owner(&task);
    /// # Ok(())
    /// # }
    /// ```
    pub fn owner(mut self, owner: &Owner) -> Lock {
        self.terms.owner = owner.clone();
        self
    }

    /// Makes it a semaphore: asks for `count` of `of` permits. All users of the key name the same `of`; nothing is set up.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// let slot = client.lock("downloads").permits(1, 2);
    /// let (_one, _two) = (slot.clone().acquire().await?, slot.clone().acquire().await?);
    /// assert!(slot.try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn permits(mut self, count: u32, of: u32) -> Lock {
        (self.terms.count, self.terms.of) = (count, Some(of));
        self
    }

    /// Returns the key, or the first of several.
    ///
    /// ```no_run
    /// # fn example(client: mortise_client::Client) {
    /// assert_eq!(client.lock("a").key(), b"a");
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        self.terms.keys.first().map_or(b"", |key| key)
    }

    /// Acquires the lock: alone, or so many [`permits`](Lock::permits). Waits in the server's queue, first come, first served.
    ///
    /// Dropped before it is ready, the future leaves neither a lock nor a place in the queue behind.
    ///
    /// # Errors
    /// [`Error::Busy`] after [`wait`](Lock::wait); [`Error::Deadlock`]; [`Error::Invalid`] or [`Error::Refused`] for terms that
    /// cannot be. What a restart or a failover explains is tried again until the wait is over.
    ///
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let guard = client.lock("stock:42").acquire().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(self) -> Result<Guard, Error> {
        let mode = match self.terms.of {
            Some(_) => Mode::Read,
            None => Mode::Write,
        };
        self.take(mode).await
    }

    /// Acquires the lock as [`acquire`](Lock::acquire) does, if it is free; `None` if others hold it.
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire), and [`Error::Connection`] at once.
    ///
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let Some(guard) = client.lock("report").try_acquire().await? else {
    ///     return Ok(()); // somebody writes it already
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(self) -> Result<Option<Guard>, Error> {
        unless_busy(self.wait(Duration::ZERO).acquire().await)
    }

    /// Acquires the lock to read: together with other readers.
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire).
    ///
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// let guard = client.lock("report").read().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn read(self) -> Result<Guard, Error> {
        self.take(Mode::Read).await
    }

    /// Acquires the lock to read, if no writer holds it or waits for it; `None` otherwise.
    ///
    /// # Errors
    /// As for [`try_acquire`](Lock::try_acquire).
    ///
    /// ```no_run
    /// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
    /// if let Some(guard) = client.lock("report").try_read().await? {
    ///     println!("nobody writes it: {:?}", guard.token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_read(self) -> Result<Option<Guard>, Error> {
        unless_busy(self.wait(Duration::ZERO).read().await)
    }

    /// Acquires the lock, runs `work` under it, and releases it. If the lock is lost before the work is done, the work is cancelled.
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire); the error of the work; [`Error::Lost`] if the lock was lost before it was done.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use mortise_client::Error;
    ///
    /// let lock = client.lock("stock:42");
    /// lock.run(|guard| async move { Ok::<_, Error>(println!("write with fence {}", guard.check()?)) }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T, E, F>(self, work: impl FnOnce(Guard) -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.acquire().await?.run(work).await
    }

    /// Takes over a lock that was [passed](Guard::pass_to) to `owner` by `token`. If a job is delivered twice, only one of two that
    /// run it gets the lock.
    ///
    /// # Errors
    /// [`Error::Lost`] if the owner does not hold it by this token: another one has taken it over, or its lease is over. If the reply
    /// is lost ([`Error::Connection`]), this client leaves the lock: it is free then if the request was carried out; otherwise the
    /// owner still holds it by this token, and may be tried again.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// # let client = mortise_client::Client::connect(server.url()).await?;
    /// use std::time::Duration;
    ///
    /// let guard = client.lock("order:7").acquire().await?;
    /// let token = guard.pass_to("job:7", Duration::from_secs(60)).await?;
    /// let runner = client.lock("order:7").take_over("job:7", token).await?;
    /// assert!(runner.token() > token);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn take_over(self, owner: impl AsRef<[u8]>, token: Token) -> Result<Guard, Error> {
        let core = self.core.clone();
        let terms = self.terms(Mode::Write)?;
        if terms.keys.len() > 1 {
            return invalid("several keys are taken over one by one".into());
        }
        take_over(&core, &terms, &owner.as_ref().into(), token).await
    }

    async fn take(self, mode: Mode) -> Result<Guard, Error> {
        let core = self.core.clone();
        let terms = self.terms(mode)?;
        match core.settings.is_quorum() {
            true => round::acquire(&core, &terms).await,
            false => acquire(&core, &terms).await,
        }
    }

    /// What is asked for, if that is possible. The server checks the rest: how many keys and permits.
    fn terms(self, mode: Mode) -> Result<Arc<Terms>, Error> {
        let (terms, given) = (&self.terms, self.terms.keys.len());
        if given == 0 {
            return invalid("a lock has at least one key".into());
        }
        if given > 1 && (mode == Mode::Read || self.core.settings.is_quorum()) {
            return invalid("several keys are taken together to write, and on one server".into());
        }
        if terms.of.is_some() && self.core.settings.is_quorum() {
            return Err(not_over_quorum(
                "majorities overlap in one server, which is enough for one holder, but not for a number of permits",
            ));
        }
        let lease = Lease::new(self.lease)?;
        let lease = match terms.max_hold {
            Some(limit) if limit < Duration::from_millis(1) => {
                return invalid(format!("a lock is held for 1 ms at least, not {limit:?}"));
            }
            limit => limit.map_or(lease, |limit| lease.limited(limit)),
        };
        Ok(Arc::new(Terms {
            mode,
            lease,
            ..self.terms
        }))
    }
}

fn invalid<T>(text: String) -> Result<T, Error> {
    Err(Error::Invalid(text))
}

/// `None` where others hold the lock.
fn unless_busy(taken: Result<Guard, Error>) -> Result<Option<Guard>, Error> {
    match taken {
        Err(Error::Busy { .. }) => Ok(None),
        taken => taken.map(Some),
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.terms.keys.iter().map(|key| text(key)).collect();
        f.debug_struct("Lock")
            .field("keys", &keys)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
