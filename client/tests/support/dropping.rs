//! Futures that are dropped on their way.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// More polls than anything here takes.
const MANY: u32 = 3000;

/// How far a future gets before it is dropped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Point {
    /// Polled so many times, everything else in the runtime running once in between.
    Polls(u32),
    /// Left alone for so long.
    After(Duration),
}

/// The steps of the tasks one by one, then the time that commands take.
pub(crate) fn points() -> impl Iterator<Item = Point> {
    (0..60).map(Point::Polls).chain(times())
}

fn times() -> impl Iterator<Item = Point> {
    (0..60).map(|n| Point::After(Duration::from_micros(n * 100)))
}

/// Runs a scenario at every point until the future in it comes to its end, which the scenario tells.
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
    assert_eq!(ended, 3, "it does not come to its end");
    for point in times() {
        scenario(point).await;
    }
}

/// Runs a future up to a point and drops it; `true` if it came to its end before.
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

/// Polls once.
pub(crate) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(pin!(&mut *future).poll(context))).await
}
