//! How a hold over a quorum is renewed, and how its guards learn that it is lost.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

use mortise_client::Loss;
use mortise_harness::cmd;

use crate::support::quorum::{quorum_of, quorum_within};
use crate::support::{eventually, ms};

#[tokio::test]
async fn a_majority_that_denies_a_renewal_is_reported_before_the_deadline() {
    let (servers, quorum) = quorum_of(3).await;
    let guard = quorum.lock("k").lease(ms(12_000)).acquire().await.unwrap();
    for server in &servers.0 {
        cmd!(server.connect(), "DEL", "k");
    }
    assert_eq!(guard.lost().await, Loss::Denied);
}

struct Task;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

#[tokio::test]
async fn a_task_that_no_longer_awaits_a_loss_is_forgotten() {
    let (_servers, quorum) = quorum_of(3).await;
    let guard = quorum.lock("k").acquire().await.unwrap();
    let task = Arc::new(Task);
    {
        let waker = task.clone().into();
        let polled = pin!(guard.lost()).poll(&mut Context::from_waker(&waker));
        assert_eq!(polled, Poll::Pending);
    }
    assert_eq!(Arc::strong_count(&task), 1);
}

#[tokio::test]
async fn a_server_that_grants_the_lock_late_is_renewed_and_released_with_the_others() {
    let (servers, quorum) = quorum_within(3, ms(10_000)).await;
    servers.0[2].stop_signal();
    let guard = quorum.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    servers.0[2].cont_signal();
    servers.await_granted("k").await;
    // With it, a majority confirms the renewal although another one is gone.
    cmd!(servers.0[0].connect(), "DEL", "k");
    eventually("two confirm it", async || guard.renew().await.is_ok()).await;
    guard.release().await.unwrap();
    servers.await_free("k").await;
}
