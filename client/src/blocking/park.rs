//! Where the blocking API's work is done, and how a thread waits for it.

use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use tokio::runtime::{Handle, Runtime};

use crate::value::error::Error;
use crate::value::sync::lock;

/// The runtime that all blocking clients of this process share. A process that was forked has none of its parent's threads,
/// and makes its own.
pub(super) fn background() -> Result<Handle, Error> {
    static RUNTIME: Mutex<Option<(u32, Runtime)>> = Mutex::new(None);
    let mut runtime = lock(&RUNTIME);
    let process = std::process::id();
    if let Some((made_in, runtime)) = &*runtime
        && *made_in == process
    {
        return Ok(runtime.handle().clone());
    }
    let new = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("mortise")
        .enable_all()
        .build()
        .map_err(|error| Error::NoThread(error.to_string()))?;
    let handle = new.handle().clone();
    // The parent's is not touched: its threads and sockets are the parent's.
    mem::forget(runtime.replace((process, new)));
    Ok(handle)
}

/// Something made of settings, once in each process.
pub(super) struct PerProcess<T> {
    made: Mutex<(u32, T)>,
    make: Box<dyn Fn() -> Result<T, Error> + Send + Sync>,
}

impl<T: Clone> PerProcess<T> {
    /// `made` is of this process; `make` is for those that are forked from it.
    pub(super) fn new(
        made: T,
        make: impl Fn() -> Result<T, Error> + Send + Sync + 'static,
    ) -> PerProcess<T> {
        PerProcess {
            made: Mutex::new((std::process::id(), made)),
            make: Box::new(make),
        }
    }

    /// What was made last, by this process or its parent.
    pub(super) fn any(&self) -> T {
        lock(&self.made).1.clone()
    }

    /// What is this process's own.
    pub(super) fn get(&self) -> Result<T, Error> {
        let mut made = lock(&self.made);
        let process = std::process::id();
        if made.0 != process {
            let new = (self.make)()?;
            mem::forget(mem::replace(&mut *made, (process, new)));
        }
        Ok(made.1.clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_parent_process_has_made_is_made_anew() {
        let (parent, counter) = (std::process::id() + 1, Arc::new(Mutex::new(7)));
        let count = counter.clone();
        let per_process = PerProcess {
            made: Mutex::new((parent, 7)),
            make: Box::new(move || {
                *lock(&count) += 1;
                Ok(*lock(&count))
            }),
        };
        assert_eq!(per_process.any(), 7);
        assert_eq!(per_process.get().unwrap(), 8);
        assert_eq!(per_process.get().unwrap(), 8, "once in each process");
    }
}
