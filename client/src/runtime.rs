//! The tokio runtime that a client was built in: its tasks and timers. A future of this crate may be polled anywhere, also
//! after that runtime is gone: then it ends.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::Error;

/// What a task in the background will come to. Several may await it, and each may stop.
pub(crate) type Promise<T> = Shared<BoxFuture<'static, Result<T, Error>>>;

/// A promise, and what keeps it. A task that is dropped with its runtime breaks it.
pub(crate) fn promise<T: Clone + Send + 'static>() -> (oneshot::Sender<Result<T, Error>>, Promise<T>)
{
    let (keep, kept) = oneshot::channel();
    let kept = kept.map(|kept| kept.unwrap_or(Err(Error::RuntimeGone)));
    (keep, kept.boxed().shared())
}

/// Clones are the same runtime. It has I/O and time enabled.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    handle: Handle,
    is_gone: Arc<AtomicBool>,
}

impl Runtime {
    pub(crate) fn new(handle: Handle) -> Runtime {
        let is_gone = Arc::default();
        Runtime { handle, is_gone }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst)
    }

    /// It has dropped a task that lasts.
    pub(crate) fn set_gone(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        #[cfg(simulated)]
        let task = crate::simulated::of_this_process(task);
        self.handle.spawn(task);
    }

    /// Polls a task once before this returns, so that what it sends at first arrives before whatever is sent later, and
    /// continues it in the background.
    pub(crate) fn begin(&self, task: impl Future<Output = ()> + Send + 'static) {
        if self.is_gone() {
            return;
        }
        let mut task: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(task);
        // A thread that ends can poll nothing any more.
        if Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed()) {
            return self.spawn(task);
        }
        let _entered = self.handle.enter();
        let mut context = Context::from_waker(Waker::noop());
        if task.as_mut().poll(&mut context).is_pending() {
            self.spawn(task);
        }
    }

    /// Waits for a future, for `limit` at most; `None` if it took longer, or the runtime is gone.
    pub(crate) async fn limited<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let timer = {
            let _entered = self.handle.enter();
            tokio::time::sleep(limit)
        };
        let mut timer = pin!(timer);
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // The timers of a runtime that is gone must not be polled.
            Poll::Pending if self.is_gone() => Poll::Ready(None),
            Poll::Pending => timer.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// Waits for this time, or until the runtime is gone.
    pub(crate) async fn sleep(&self, time: Duration) {
        if !time.is_zero() {
            self.limited(time, std::future::pending::<()>()).await;
        }
    }
}
