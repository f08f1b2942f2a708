//! Wakes the tasks that await replies which were read together, a few at a time; and how a task lets others run.

use std::future::poll_fn;
use std::mem;
use std::task::{Context, Poll, Waker};
use std::vec;

/// So many tasks at least are woken together; of many, such a part.
const FEW: usize = 8;
const PARTS: usize = 4;

/// Tasks whose requests were answered or have failed. Dropped, it wakes those that were not woken.
pub(super) struct Awaiting(vec::IntoIter<Waker>);

impl Awaiting {
    pub(super) fn new(wakers: Vec<Waker>) -> Awaiting {
        Awaiting(wakers.into_iter())
    }

    /// Wakes a few tasks, and lets them run and send before it wakes the next: so the server has requests again while other tasks
    /// still get their replies. If all were woken at once, all would send at once; then server and client would take turns, each
    /// idle while the other works.
    pub(super) async fn wake(mut self) {
        let few = FEW.max(self.0.len() / PARTS);
        // One alone is woken by the drop: nothing is to be done meanwhile.
        while self.0.len() > 1 {
            self.0.by_ref().take(few).for_each(Waker::wake);
            let mut yielded = Yielded(false);
            poll_fn(|context| yielded.poll(context)).await;
        }
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.0.by_ref().for_each(Waker::wake);
    }
}

/// Whether a task has let the others run that are ready. (tokio's own way to yield would have the system asked for events first.)
pub(super) struct Yielded(pub(super) bool);

impl Yielded {
    /// Ready when the task is polled again.
    pub(super) fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        if mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn tasks(count: usize) -> (Awaiting, Arc<Woken>) {
        let woken = Arc::new(Woken::default());
        let wakers = (0..count).map(|_| Waker::from(woken.clone())).collect();
        (Awaiting::new(wakers), woken)
    }

    #[test]
    fn tasks_are_woken_a_few_at_a_time_and_by_a_drop_all() {
        let (awaiting, woken) = tasks(20);
        {
            let mut waking = pin!(awaiting.wake());
            for expected in [FEW, 2 * FEW] {
                let polled = waking
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
                assert_eq!(woken.0.load(Ordering::Relaxed), expected);
            }
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 20);
    }

    #[test]
    fn one_task_is_woken_at_once() {
        let (awaiting, woken) = tasks(1);
        let mut waking = pin!(awaiting.wake());
        let polled = waking
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }
}
