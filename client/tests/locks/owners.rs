//! Two tasks of one owner request a lock at the same time. The second one waits for the first, and that wait counts against its limit.

use std::fmt::Debug;
use std::pin::{Pin, pin};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use mortise_client::{Client, Error, Lock, LockInfo, Owner};
use mortise_harness::Server;

use crate::support::{await_waiters, client, ms};

#[tokio::test]
async fn waiting_for_another_task_of_the_owner_counts_against_the_limit() {
    let server = Server::start();
    let (mine, other) = (client(&server).await, client(&server).await);
    let _held = other.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let lock = mine.lock("k").owner(&Owner::new()).reentrant();
    assert_second_waits_for_the_rest(&other, lock).await;
}

#[tokio::test]
async fn waiting_for_another_task_of_the_reader_counts_against_the_limit_of_an_upgrade() {
    let server = Server::start();
    let (mine, other) = (client(&server).await, client(&server).await);
    let _held = other.lock("k").lease(ms(60_000)).read().await.unwrap();
    let lock = mine.lock("k").owner(&Owner::new()).reentrant();
    let _outer = lock.read().await.unwrap();
    assert_second_waits_for_the_rest(&other, lock).await;
}

/// The first task gives up after three seconds.
async fn assert_second_waits_for_the_rest(observer: &Client, lock: Lock) {
    let limit = ms(60_000);
    let (first, second) = (lock.clone().wait(ms(3_000)), lock.wait(limit));
    let mut first = pin!(first.acquire());
    await_queued(first.as_mut(), observer).await;
    let mut second = pin!(second.acquire());
    assert!(second.as_mut().now_or_never().is_none());
    let began = Instant::now();
    let refused = first.await;
    let waited = began.elapsed();
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");

    let info = await_queued(second, observer).await;
    let left = info.queue[0].left.expect("it has a limit");
    // The limit is rounded up to a millisecond.
    assert!(left <= limit - waited + ms(1), "{left:?} after {waited:?}");
}

/// Polls a request until it stands in the server's queue.
async fn await_queued<F: Future<Output: Debug>>(
    request: Pin<&mut F>,
    observer: &Client,
) -> LockInfo {
    let queued = pin!(await_waiters(observer, "k", 1));
    match select(request, queued).await {
        Either::Right((info, _)) => info,
        Either::Left((outcome, _)) => panic!("it has ended before it queued: {outcome:?}"),
    }
}
