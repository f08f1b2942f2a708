//! The tokio runtime that a client was built in: its tasks and timers. A future of this crate may be polled anywhere, also
//! after that runtime is gone: then it ends.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::Sleep;

/// Clones are the same runtime. It has I/O and time enabled.
#[derive(Debug, Clone)]
pub(crate) struct Runtime {
    handle: Handle,
    life: Arc<Life>,
}

/// Whether the runtime lives: a task of it says so by its end.
#[derive(Debug)]
struct Life {
    is_over: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Why something did not end in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// It took too long.
    Late,
    /// The runtime is gone.
    RuntimeGone,
}

/// Sets a flag when it is dropped.
struct Mark(Arc<AtomicBool>);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Runtime {
    pub(crate) fn new(handle: Handle) -> Runtime {
        let is_over = Arc::new(AtomicBool::new(false));
        let mark = Mark(is_over.clone());
        let task = handle.spawn(async move {
            let _mark = mark;
            std::future::pending::<()>().await;
        });
        let task = task.abort_handle();
        Runtime {
            handle,
            life: Arc::new(Life { is_over, task }),
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.life.is_over.load(Ordering::Acquire)
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        #[cfg(simulated)]
        let task = crate::simulated::of_this_process(task);
        self.handle.spawn(task).abort_handle()
    }

    /// Polls a task once before this returns, so that what it sends at first arrives before whatever is sent later, and
    /// continues it in the background.
    pub(crate) fn begin(&self, task: impl Future<Output = ()> + Send + 'static) {
        if self.is_gone() {
            return;
        }
        let mut task: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(task);
        let _entered = self.handle.enter();
        let mut context = Context::from_waker(Waker::noop());
        if task.as_mut().poll(&mut context).is_pending() {
            self.spawn(task);
        }
    }

    /// Waits for a future, for `limit` at most.
    pub(crate) async fn limited<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<F::Output, Interrupted> {
        let mut future = pin!(future);
        let mut timer = pin!(self.timer(limit));
        std::future::poll_fn(|context| {
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Ok(output));
            }
            // The timers of a runtime that is gone must not be polled.
            if self.is_gone() {
                return Poll::Ready(Err(Interrupted::RuntimeGone));
            }
            timer
                .as_mut()
                .poll(context)
                .map(|()| Err(Interrupted::Late))
        })
        .await
    }

    /// Waits for this time, or until the runtime is gone.
    pub(crate) async fn sleep(&self, time: Duration) {
        let _ = self.limited(time, std::future::pending::<()>()).await;
    }

    /// A timer of this runtime, wherever it is polled.
    fn timer(&self, limit: Duration) -> Sleep {
        let _entered = self.handle.enter();
        tokio::time::sleep(limit)
    }
}
