//! Futures that are dropped before they are ready.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// More polls than any future here needs, also on a machine that polls one each microsecond.
const MANY: u32 = 10_000;

/// How far a future gets before it is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Point {
    /// After this many polls, between which the runtime's other tasks run once.
    Polls(u32),
    /// After this time.
    After(Duration),
}

/// First poll by poll, then in steps of time about as long as commands take.
pub(crate) fn points() -> impl Iterator<Item = Point> {
    (0..60).map(Point::Polls).chain(times())
}

fn times() -> impl Iterator<Item = Point> {
    (0..60).map(|n| Point::After(Duration::from_micros(n * 100)))
}

/// Runs a scenario at every point until it returns that its future ended.
pub(crate) async fn at_every_point(mut scenario: impl AsyncFnMut(Point) -> bool) {
    let mut ended = 0;
    for polls in 0..MANY {
        if scenario(Point::Polls(polls)).await {
            ended += 1;
        }
        if ended == 3 {
            break;
        }
    }
    assert_eq!(ended, 3, "the future does not end");
    for point in times() {
        scenario(point).await;
    }
}

/// Runs a future up to a point and drops it; `true` if it ended before.
pub(crate) async fn drop_at<F: Future>(future: F, point: Point) -> bool {
    let mut future = pin!(future);
    match point {
        Point::Polls(polls) => {
            for _ in 0..polls {
                let mut context = Context::from_waker(Waker::noop());
                if future.as_mut().poll(&mut context).is_ready() {
                    return true;
                }
                tokio::task::yield_now().await;
            }
            false
        }
        Point::After(time) => tokio::time::timeout(time, future).await.is_ok(),
    }
}

pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(pin!(&mut *future).poll(context))).await
}
