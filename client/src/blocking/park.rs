//! Where the blocking API's work is done, and how a thread waits for it.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use tokio::runtime::{Handle, Runtime};

use crate::error::Error;

/// The runtime of the one background thread, started with the first client.
pub(super) fn background() -> Result<Handle, Error> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime.handle().clone());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("mortise")
        .enable_all()
        .build()
        .map_err(|error| Error::NoThread(error.to_string()))?;
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
