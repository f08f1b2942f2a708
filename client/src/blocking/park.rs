//! Where the blocking API's work is done, and how a thread waits for it.

use std::fmt;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::run::core::Core;
use crate::value::error::Error;
use crate::value::sync::lock;

/// One value for each process: a process that was forked makes its own, and does not touch its parent's, whose threads and
/// sockets it does not have.
struct PerProcess<T>(Mutex<Option<(u32, T)>>);

impl<T: Clone> PerProcess<T> {
    fn get(&self, make: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let mut made = lock(&self.0);
        let process = std::process::id();
        if let Some((made_in, value)) = &*made
            && *made_in == process
        {
            return Ok(value.clone());
        }
        let value = make()?;
        mem::forget(made.replace((process, value.clone())));
        Ok(value)
    }
}

/// The runtime that all blocking clients of this process share.
pub(super) fn background() -> Result<Handle, Error> {
    static RUNTIME: PerProcess<Handle> = PerProcess(Mutex::new(None));
    RUNTIME.get(|| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let builder = builder.worker_threads(1).thread_name("mortise");
        let runtime = builder.enable_all().build();
        let runtime = runtime.map_err(|error| Error::NoThread(error.to_string()))?;
        let handle = runtime.handle().clone();
        mem::forget(runtime);
        Ok(handle)
    })
}

/// Where locks are taken from, in each process anew.
pub struct Cores {
    made: PerProcess<Arc<Core>>,
    make: Box<dyn Fn() -> Result<Arc<Core>, Error> + Send + Sync>,
}

impl Cores {
    /// `made` is of this process; `make` is for those that are forked from it.
    pub(super) fn new(
        made: &Arc<Core>,
        make: impl Fn() -> Result<Arc<Core>, Error> + Send + Sync + 'static,
    ) -> Arc<Cores> {
        let made = Mutex::new(Some((std::process::id(), made.clone())));
        Arc::new(Cores {
            made: PerProcess(made),
            make: Box::new(make),
        })
    }

    /// Those made last, by this process or its parent.
    pub(super) fn any(&self) -> Arc<Core> {
        let made = lock(&self.made.0);
        made.as_ref().expect("made from the beginning").1.clone()
    }

    /// This process's.
    pub(super) fn get(&self) -> Result<Arc<Core>, Error> {
        self.made.get(&self.make)
    }

    pub(super) fn close(&self) {
        if let Ok(core) = self.get() {
            wait(core.close());
        }
    }
}

impl fmt::Debug for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.any().fmt(f)
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until the future is done. What the futures here wait for happens on the background thread, so no
/// runtime is needed, and one that is there is not in the way.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    let Some(value) = wait_until(future, None) else {
        unreachable!("a wait without a limit has come to its limit");
    };
    value
}

pub(super) fn wait_until<F: Future>(future: F, until: Option<Instant>) -> Option<F::Output> {
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
