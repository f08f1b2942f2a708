//! The same locks for threads without a runtime.
//!
//! One background thread serves all clients made here: it renews, waits and releases. It does not matter where these
//! functions are called, inside a runtime included, except that they block the thread they are called on.
//!
//! ```no_run
//! use mortise_client::blocking::Client;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), mortise_client::Error> {
//! let client = Client::connect("redis://127.0.0.1/")?;
//! let guard = client.lock("report").wait(Duration::from_secs(5)).acquire()?;
//! println!("write with fencing token {}", guard.token());
//! guard.release()?;
//! # Ok(())
//! # }
//! ```

use std::ops::Deref;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Runtime};

use crate::builder::{Builder, IntoServer};
use crate::error::{Error, Loss};
use crate::guard::Held;
use crate::info::{LockInfo, TopEntry};
use crate::owner::Owner;
use crate::quorum::QuorumBuilder;
use crate::release::Released;

/// A client of one server; see [`crate::Client`].
#[derive(Debug, Clone)]
pub struct Client(crate::Client);

/// A quorum of independent servers; see [`crate::Quorum`].
#[derive(Debug, Clone)]
#[doc(alias = "redlock")]
pub struct Quorum(crate::Quorum);

/// A lock by its key, with the terms on which to take it; see [`crate::Lock`].
#[derive(Debug, Clone)]
#[must_use = "a lock holds nothing until it is acquired"]
pub struct Lock(crate::Lock);

/// A lock that is held; see [`crate::Guard`].
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard(crate::Guard);

impl Client {
    /// Connects to a server.
    ///
    /// # Errors
    /// As for [`crate::Client::connect`].
    pub fn connect(server: impl IntoServer) -> Result<Client, Error> {
        Client::connect_with(crate::Client::builder(server)?)
    }

    /// Connects with settings of your own.
    ///
    /// # Errors
    /// As for [`crate::Client::connect`].
    pub fn connect_with(settings: Builder) -> Result<Client, Error> {
        wait(settings.runtime(background()?).connect()).map(Client)
    }

    /// The lock with this key. Nothing is sent yet.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock(self.0.lock(key))
    }

    /// Who holds a lock and who waits for it.
    ///
    /// # Errors
    /// As for [`crate::Client::info`].
    pub fn info(&self, key: impl AsRef<[u8]>) -> Result<Option<LockInfo>, Error> {
        wait(self.0.info(key))
    }

    /// The locks with the most waiters.
    ///
    /// # Errors
    /// As for [`crate::Client::top`].
    pub fn top(&self, count: usize) -> Result<Vec<TopEntry>, Error> {
        wait(self.0.top(count))
    }
}

impl Quorum {
    /// Connects to an odd number of servers.
    ///
    /// # Errors
    /// As for [`crate::Quorum::connect`].
    pub fn connect<S: IntoServer>(servers: impl IntoIterator<Item = S>) -> Result<Quorum, Error> {
        Quorum::connect_with(crate::Quorum::builder(servers)?)
    }

    /// Connects with settings of your own.
    ///
    /// # Errors
    /// As for [`crate::Quorum::connect`].
    pub fn connect_with(settings: QuorumBuilder) -> Result<Quorum, Error> {
        wait(settings.runtime(background()?).connect()).map(Quorum)
    }

    /// The lock with this key. Nothing is sent yet.
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Lock {
        Lock(self.0.lock(key))
    }
}

impl Lock {
    /// As [`crate::Lock::lease`].
    pub fn lease(self, lease: Duration) -> Lock {
        Lock(self.0.lease(lease))
    }

    /// As [`crate::Lock::wait`].
    pub fn wait(self, limit: Duration) -> Lock {
        Lock(self.0.wait(limit))
    }

    /// As [`crate::Lock::wait_forever`].
    pub fn wait_forever(self) -> Lock {
        Lock(self.0.wait_forever())
    }

    /// As [`crate::Lock::owner`].
    pub fn owner(self, owner: &Owner) -> Lock {
        Lock(self.0.owner(owner))
    }

    /// As [`crate::Lock::reentrant`].
    pub fn reentrant(self) -> Lock {
        Lock(self.0.reentrant())
    }

    /// As [`crate::Lock::auto_renew`].
    pub fn auto_renew(self, renew: bool) -> Lock {
        Lock(self.0.auto_renew(renew))
    }

    /// As [`crate::Lock::max_hold`].
    pub fn max_hold(self, limit: Duration) -> Lock {
        Lock(self.0.max_hold(limit))
    }

    /// As [`crate::Lock::acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn acquire(&self) -> Result<Guard, Error> {
        wait(self.0.acquire()).map(Guard)
    }

    /// As [`crate::Lock::try_acquire`].
    ///
    /// # Errors
    /// As there.
    pub fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        Ok(wait(self.0.try_acquire())?.map(Guard))
    }

    /// As [`crate::Lock::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(&self) -> Result<Guard, Error> {
        self.acquire()
    }

    /// As [`crate::Lock::try_write`].
    ///
    /// # Errors
    /// As there.
    pub fn try_write(&self) -> Result<Option<Guard>, Error> {
        self.try_acquire()
    }

    /// As [`crate::Lock::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self) -> Result<Guard, Error> {
        wait(self.0.read()).map(Guard)
    }

    /// As [`crate::Lock::try_read`].
    ///
    /// # Errors
    /// As there.
    pub fn try_read(&self) -> Result<Option<Guard>, Error> {
        Ok(wait(self.0.try_read())?.map(Guard))
    }

    /// Runs `work` under the lock and always releases. It cannot be cancelled: it should look at
    /// [`Held::is_valid`] where it matters. The value comes back only if the lock was held to the end.
    ///
    /// # Errors
    /// As for [`crate::Lock::run`].
    pub fn run<T>(&self, work: impl FnOnce(&Held) -> T) -> Result<T, Error> {
        let guard = self.acquire()?;
        let value = work(&guard);
        let loss = guard.loss();
        match (loss, guard.release()) {
            (Some(loss), _) => Err(Error::Lost(loss)),
            (None, Ok(Released::Lost)) => Err(Error::Lost(Loss::Denied)),
            (None, _) => Ok(value),
        }
    }
}

impl Guard {
    /// As [`crate::Guard::renew`].
    ///
    /// # Errors
    /// As there.
    pub fn renew(&self) -> Result<(), Error> {
        wait(self.0.renew())
    }

    /// As [`crate::Guard::renew_for`].
    ///
    /// # Errors
    /// As there.
    pub fn renew_for(&self, lease: Duration) -> Result<(), Error> {
        wait(self.0.renew_for(lease))
    }

    /// As [`crate::Guard::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(self) -> Result<Released, Error> {
        wait(self.0.release())
    }

    /// As [`crate::Guard::upgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn upgrade(&mut self) -> Result<(), Error> {
        wait(self.0.upgrade())
    }

    /// As [`crate::Guard::upgrade_within`].
    ///
    /// # Errors
    /// As there.
    pub fn upgrade_within(&mut self, limit: Duration) -> Result<(), Error> {
        wait(self.0.upgrade_within(limit))
    }

    /// As [`crate::Guard::downgrade`].
    ///
    /// # Errors
    /// As there.
    pub fn downgrade(&mut self) -> Result<(), Error> {
        wait(self.0.downgrade())
    }

    /// Waits up to `limit` for the lock to be lost; `None` if it is not.
    pub fn wait_lost(&self, limit: Duration) -> Option<Loss> {
        wait_until(self.0.lost(), Instant::now().checked_add(limit))
    }
}

impl Deref for Guard {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.0
    }
}

/// The runtime of the one background thread, started with the first client.
fn background() -> Result<Handle, Error> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime.handle().clone());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("mortise")
        .enable_all()
        .build()
        .map_err(|error| Error::Connection(error.into()))?;
    let mut spare = Some(runtime);
    let kept = RUNTIME.get_or_init(|| spare.take().expect("the runtime just built"));
    if let Some(spare) = spare {
        // Somebody else was faster. Not to be dropped where blocking is forbidden.
        spare.shutdown_background();
    }
    Ok(kept.handle().clone())
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until the future is done. What the futures here wait for happens on the background thread, so no
/// runtime is needed, and one that is there is not in the way.
fn wait<F: Future>(future: F) -> F::Output {
    let Some(value) = wait_until(future, None) else {
        unreachable!("a wait without a limit has come to its limit");
    };
    value
}

fn wait_until<F: Future>(future: F, until: Option<Instant>) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        match until {
            None => thread::park(),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                thread::park_timeout(left);
            }
        }
    }
}
