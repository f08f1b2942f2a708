//! The same locks for threads without a runtime: [`Wait::wait`] blocks the thread until a future of this crate has come to
//! its end.
//!
//! One background thread serves all clients that are connected in this way: it renews, waits and releases. It does not matter
//! where [`wait`](Wait::wait) is called, inside a runtime included, except that it blocks the thread: in async code, use
//! `.await`.
//!
//! A [`Guard`] of this module is released when its drop returns; [`Wait::wait_guard`] makes one.
//!
//! ```no_run
//! use mortise_client::Client;
//! use mortise_client::blocking::Wait;
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), mortise_client::Error> {
//! let client = Client::connect("redis://127.0.0.1/").wait()?;
//! let guard = client.lock("report").wait(Duration::from_secs(5)).acquire().wait_guard()?;
//! println!("write with fencing token {}", guard.token());
//! guard.release()?;
//! # Ok(())
//! # }
//! ```

use std::mem;
use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};

use crate::value::{Error, lock};

/// Waits for futures on the current thread.
///
/// ```
/// use mortise_client::blocking::Wait;
/// use mortise_client::Client;
///
/// # fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// let client = Client::connect(server.url()).wait()?;
/// let length = client.lock("report").run(|held| async move { Ok::<_, mortise_client::Error>(held.key().len()) }).wait()?;
/// assert_eq!(length, 6);
/// # Ok(())
/// # }
/// ```
pub trait Wait: Future + Sized {
    /// Blocks until the future has come to its end.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::blocking::Wait;
    ///
    /// assert_eq!(async { 7 }.wait(), 7);
    /// ```
    fn wait(self) -> Self::Output {
        let Some(value) = poll_until(self, None) else {
            unreachable!("a wait without a limit has come to its limit");
        };
        value
    }

    /// Blocks until the future has come to its end, for `limit` at most; `None` if it has not by then. It is dropped, as a
    /// timeout of a runtime drops it.
    ///
    /// # Examples
    /// ```
    /// use mortise_client::blocking::Wait;
    /// use std::time::Duration;
    ///
    /// assert_eq!(std::future::pending::<()>().wait_up_to(Duration::from_millis(1)), None);
    /// ```
    fn wait_up_to(self, limit: Duration) -> Option<Self::Output> {
        poll_until(self, Instant::now().checked_add(limit))
    }

    /// Blocks until a lock is taken. Its guard waits for the release when it is dropped.
    ///
    /// # Errors
    /// Those of the future.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> Result<(), mortise_client::Error> {
    /// # let server = mortise_harness::Server::start();
    /// use mortise_client::Client;
    /// use mortise_client::blocking::Wait;
    ///
    /// let client = Client::connect(server.url()).wait()?;
    /// drop(client.lock("a").acquire().wait_guard()?);
    /// assert!(client.info("a").wait()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    fn wait_guard(self) -> Result<Guard, Error>
    where
        Self: Future<Output = Result<crate::Guard, Error>>,
    {
        self.wait().map(Guard::from)
    }
}

impl<F: Future> Wait for F {}

/// A lock that a thread holds: when its drop returns it is released, unless the server does not answer in time. Then that goes
/// on in the background.
///
/// It dereferences to the crate's own [`Guard`](crate::Guard). In a process that was forked it releases nothing: its
/// parent has the lock.
///
/// ```no_run
/// # fn main() -> Result<(), mortise_client::Error> {
/// use mortise_client::Client;
/// use mortise_client::blocking::{Guard, Wait};
///
/// let client = Client::connect("redis://127.0.0.1/").wait()?;
/// if let Some(guard) = client.lock("job").try_acquire().wait()? {
///     let guard = Guard::from(guard);
///     guard.renew().wait()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard {
    /// `None` once it is given back.
    guard: Option<crate::Guard>,
    process: u32,
}

impl Guard {
    /// Gives the lock back, and waits for that.
    ///
    /// # Errors
    /// As for [`Guard::release`](crate::Guard::release) of the crate, and [`Error::Forked`].
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(guard: mortise_client::blocking::Guard) -> Result<(), mortise_client::Error> {
    /// guard.release()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn release(mut self) -> Result<(), Error> {
        match self.take() {
            Some(guard) => guard.release().wait(),
            None => Err(Error::Forked),
        }
    }

    /// The guard, unless it is another process's.
    fn take(&mut self) -> Option<crate::Guard> {
        let guard = self.guard.take();
        if self.process == std::process::id() {
            return guard;
        }
        mem::forget(guard);
        None
    }
}

impl From<crate::Guard> for Guard {
    fn from(guard: crate::Guard) -> Guard {
        Guard {
            guard: Some(guard),
            process: std::process::id(),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(guard) = self.take() {
            let limit = guard.answer_limit();
            // What is not answered by then is repeated in the background.
            let _ = guard.release().wait_up_to(limit);
        }
    }
}

impl Deref for Guard {
    type Target = crate::Guard;

    fn deref(&self) -> &crate::Guard {
        self.guard.as_ref().expect("a guard until it is given back")
    }
}

impl DerefMut for Guard {
    fn deref_mut(&mut self) -> &mut crate::Guard {
        self.guard.as_mut().expect("a guard until it is given back")
    }
}

/// The background thread's runtime. A process that was forked has none of its parent's threads, and gets its own.
fn background() -> Option<Handle> {
    static RUNTIME: Mutex<Option<(u32, Handle)>> = Mutex::new(None);
    let mut made = lock(&RUNTIME);
    let process = std::process::id();
    if let Some((made_in, handle)) = &*made
        && *made_in == process
    {
        return Some(handle.clone());
    }
    let mut builder = Builder::new_multi_thread();
    let builder = builder.worker_threads(1).thread_name("mortise");
    let runtime = builder.enable_all().build().ok()?;
    let handle = runtime.handle().clone();
    // It lives as long as the process; the parent's handle cannot be dropped here.
    mem::forget((runtime, made.replace((process, handle.clone()))));
    Some(handle)
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn poll_until<F: Future>(future: F, until: Option<Instant>) -> Option<F::Output> {
    let background = background();
    let _entered = background.as_ref().map(Handle::enter);
    // In a task the runtime would have it yield now and then, which here would be for ever.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        match until.map(|until| until.saturating_duration_since(Instant::now())) {
            None => thread::park(),
            Some(Duration::ZERO) => return None,
            Some(left) => thread::park_timeout(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::{BootInstant, Loss};

    #[test]
    fn a_guard_whose_runtime_does_not_run_is_lost_at_its_deadline() {
        let server = mortise_harness::Server::start();
        let mut builder = Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let guard = runtime.block_on(async {
            let client = crate::Client::connect(server.url()).await.unwrap();
            let lock = client.lock("k").lease(Duration::from_millis(500));
            Guard::from(lock.acquire().await.unwrap())
        });
        let (sender, lost) = mpsc::channel();
        thread::spawn(move || {
            let brief = Duration::from_millis(50);
            assert_eq!(guard.lost().wait_up_to(brief), None);
            sender.send((guard.lost().wait(), BootInstant::now() >= guard.deadline()))
        });
        let lost = lost.recv_timeout(Duration::from_secs(10));
        assert_eq!(lost, Ok((Loss::Expired, true)));
    }
}
