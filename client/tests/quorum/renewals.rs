//! How a hold over a quorum is renewed, and how its guards learn that it is lost.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

use mortise_client::{BootInstant, Loss, Owner};
use mortise_harness::cmd;

use crate::support::quorum::Servers;
use crate::support::{eventually, ms, refuse};

#[tokio::test]
async fn a_renewal_counts_a_server_that_grants_the_lock_late() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(10_000)).await;
    let lock = quorum.lock("k").lease(ms(60_000)).auto_renew(false);
    servers.0[2].stop_signal();
    let guard = Arc::new(lock.acquire().await.unwrap());
    refuse(&servers.0[0], "lock.renew");
    let renewing = tokio::spawn({
        let guard = guard.clone();
        async move { guard.renew().await }
    });
    eventually("the first server has refused it", async || {
        servers.0[0].errors("NOPERM") > 0
    })
    .await;
    servers.0[2].cont_signal();
    renewing.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_majority_that_denies_a_renewal_is_reported_before_the_deadline() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let guard = quorum.lock("k").lease(ms(12_000)).acquire().await.unwrap();
    for server in &servers.0 {
        cmd!(server.connect(), "DEL", "k");
    }
    assert_eq!(guard.lost().await, Loss::Denied);
    assert!(BootInstant::now() < guard.deadline());
}

#[tokio::test]
async fn a_server_that_confirms_a_renewal_late_keeps_the_lock_as_long_as_the_others() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(2_000)).await;
    let lock = quorum.lock("k").lease(ms(8_000)).auto_renew(false);
    let guard = lock.acquire().await.unwrap();
    // Two grants make the lock. A renewal without the first server needs the other two.
    servers.0[0].stop_signal();
    guard.renew().await.unwrap();
    servers.0[0].cont_signal();
    let first = guard.deadline();
    servers.0[2].stop_signal();
    guard.renew_for(ms(60_000)).await.unwrap();
    servers.0[2].cont_signal();
    // By its first lease the client would leave the lock there.
    tokio::time::sleep(first.remaining() + ms(500)).await;
    assert_eq!(servers.taken("k"), [0, 1, 2]);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_hold_is_renewed_while_one_of_its_guards_wants_that() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(1_500)).await;
    let lock = quorum.lock("k").owner(&Owner::new()).reentrant();
    let lock = lock.lease(ms(6_000)).auto_renew(false);
    let guard = lock.acquire().await.unwrap();
    let first = guard.deadline();
    let renewing = lock.auto_renew(true).acquire().await.unwrap();
    eventually("it is renewed", async || {
        guard.deadline() > first + ms(1_000)
    })
    .await;
    renewing.release().await.unwrap();
    let lost = tokio::time::timeout(ms(20_000), guard.lost()).await;
    assert_eq!(lost, Ok(Loss::Expired));
}

struct Task;

impl Wake for Task {
    fn wake(self: Arc<Self>) {}
}

#[tokio::test]
async fn a_task_that_no_longer_awaits_a_loss_is_forgotten() {
    let servers = Servers::start(3);
    let guard = servers.quorum().await.lock("k").acquire().await.unwrap();
    let task = Arc::new(Task);
    {
        let waker = task.clone().into();
        let polled = pin!(guard.lost()).poll(&mut Context::from_waker(&waker));
        assert_eq!(polled, Poll::Pending);
    }
    assert_eq!(Arc::strong_count(&task), 1);
}
