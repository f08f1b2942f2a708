//! Slow and partitioned networks: how long a guard may count on its lease, when a quorum may grant, and what it costs.

use std::time::Duration;

use mortise_client::{BootInstant, Error, Loss, Quorum};
use mortise_harness::Server;

use crate::support::dropping::poll_once;
use crate::support::proxy::{Proxy, Traffic};
use crate::support::quorum::{Servers, connect, quorum_within};
use crate::support::{self, await_waiters, client, client_of, ms};

/// How long a lease is valid for the client, from when it sent the request.
fn validity(lease: Duration) -> Duration {
    lease - lease / 100 - ms(2)
}

async fn quorum_over(proxies: &[Proxy], node_timeout: Duration) -> Quorum {
    let quorum = connect(proxies.iter().map(Proxy::url), node_timeout).await;
    await_connected(&quorum).await;
    quorum
}

/// Waits until the client is connected to the slowest server, too.
async fn await_connected(quorum: &Quorum) {
    loop {
        let answers = quorum.info("k").await;
        if answers.iter().all(|there| there.answer.is_ok()) {
            return;
        }
    }
}

#[tokio::test]
async fn belief_is_counted_from_sending_the_request_not_from_its_reply() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let slow = mortise_client::Client::connect(proxy.url()).await.unwrap();
    let lease = ms(60_000);
    let lock = slow.lock("k").lease(lease).auto_renew(false);
    let delay = ms(150);
    proxy.set(Traffic::Takes(delay));
    let latest = || BootInstant::now() + validity(lease);
    let guard = lock.clone().acquire().await.unwrap();
    assert!(guard.deadline() + delay * 2 <= latest());
    guard.renew().await.unwrap();
    assert!(guard.deadline() + delay * 2 <= latest());
    // Granted by a hand-off, and confirmed.
    let waiting = tokio::spawn({
        let lock = lock.clone().lease(ms(3000));
        async move {
            let guard = lock.clone().acquire().await.unwrap();
            (guard.deadline(), BootInstant::now(), guard)
        }
    });
    await_waiters(&client(&server).await, "k", 1).await;
    tokio::time::sleep(ms(400)).await;
    guard.release().await.unwrap();
    let (deadline, had, guard) = waiting.await.unwrap();
    assert!(guard.is_valid());
    assert!(deadline + delay * 2 <= had + validity(ms(3000)));
}

#[tokio::test]
async fn belief_over_a_quorum_is_counted_from_its_earliest_request() {
    let servers = Servers::start(3);
    let proxies = servers.proxies().await;
    let quorum = quorum_over(&proxies, ms(5000)).await;
    let lease = ms(60_000);
    let lock = quorum.lock("k").lease(lease).auto_renew(false);
    for (n, proxy) in proxies.iter().enumerate() {
        proxy.set(Traffic::Takes(ms(n as u64 * 150)));
    }
    // The second reply makes the majority.
    let guard = lock.clone().acquire().await.unwrap();
    assert!(guard.deadline() + ms(300) <= BootInstant::now() + validity(lease));
    guard.renew().await.unwrap();
    assert!(guard.deadline() + ms(300) <= BootInstant::now() + validity(lease));
}

#[tokio::test]
async fn a_quorum_that_replies_too_late_is_no_grant_and_is_released_everywhere() {
    let servers = Servers::start(3);
    let proxies = servers.proxies().await;
    let quorum = quorum_over(&proxies, ms(100)).await;
    for proxy in &proxies {
        proxy.set(Traffic::Takes(ms(200)));
    }
    let brief = quorum.lock("k").lease(ms(400)).wait(ms(600));
    let error = brief.acquire().await.unwrap_err();
    let Error::NoQuorum {
        granted: 0, nodes, ..
    } = &error
    else {
        panic!("{error:?}");
    };
    // The client drops a late connection if another one opens before it replies.
    let late = |it: &mortise_client::NodeFailure| matches!(it.reason, Error::Connection { .. });
    assert!(nodes.len() == 3 && nodes.iter().all(late), "{error}");
    // A release follows each late grant, long before its lease is over.
    let patient = quorum.lock("k").lease(ms(60_000)).wait(ms(600));
    assert!(patient.acquire().await.is_err());
    servers.await_free("k").await;
}

/// Stops the process for longer than the lease at each point of an acquisition, as well as a test in that process can: the
/// thread that should run the tasks sleeps.
#[tokio::test]
async fn a_majority_won_before_the_process_slept_through_the_lease_is_no_grant() {
    let (servers, quorum) = quorum_within(3, ms(100)).await;
    let lease = ms(400);
    let lock = quorum.lock("k").lease(lease).wait(ms(20_000));
    for steps in [0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 25] {
        let mut acquire = Box::pin(lock.clone().acquire());
        let mut guard = None;
        for _ in 0..=steps {
            if let std::task::Poll::Ready(ready) = poll_once(&mut acquire).await {
                guard = Some(ready.unwrap());
                break;
            }
            tokio::task::yield_now().await;
        }
        std::thread::sleep(lease);
        match guard {
            Some(guard) => assert_eq!(guard.loss(), Some(Loss::Expired)),
            None => match acquire.await {
                Ok(guard) => assert!(guard.is_valid(), "slept after {steps} steps"),
                Err(error) => assert!(matches!(error, Error::Lost(_)), "{error:?}"),
            },
        }
        servers.await_free("k").await;
    }
}

#[tokio::test]
async fn nobody_behind_a_partition_is_granted_before_the_holder_notices_its_loss() {
    let servers = Servers::start(5);
    let proxies = servers.proxies().await;
    let near = quorum_over(&proxies, ms(200)).await;
    let far = servers.quorum_with(ms(200)).await;
    for traffic in [Traffic::Cut, Traffic::Stalls, Traffic::LosesReplies] {
        let guard = near.lock("k").lease(ms(1500)).acquire().await.unwrap();
        let waiting = tokio::spawn(far.lock("k").lease(ms(10_000)).wait(ms(30_000)).acquire());
        // It queues on the first server that replied: any, on a busy machine.
        support::eventually("a request queues", || async {
            let waiters = |it: &Server| it.gauge("waiters");
            servers.0.iter().map(waiters).sum::<i64>() > 0
        })
        .await;
        for proxy in &proxies[..3] {
            proxy.set(traffic);
        }
        let other = waiting.await.unwrap().unwrap();
        assert!(!guard.is_valid(), "two hold the lock: {traffic:?}");
        assert!(other.is_valid() && other.token() > guard.token());
        drop(guard);
        for proxy in &proxies {
            proxy.set(Traffic::Flows);
        }
        // A late release by the loser does not end the other hold.
        assert!(other.renew().await.is_ok());
        other.release().await.unwrap();
        servers.await_free("k").await;
        // A connection that was opened during the fault may break only now.
        await_connected(&near).await;
    }
}

#[tokio::test]
async fn a_waiter_whose_connection_is_cut_or_falls_silent_queues_again_and_is_granted() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let (behind, direct) = (client_of(&proxy.url()).await, client(&server).await);
    for traffic in [Traffic::Cut, Traffic::Stalls] {
        let holder = direct.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn(behind.lock("k").acquire());
        await_waiters(&direct, "k", 1).await;
        proxy.set(traffic);
        // The server closes the box of a client that does not ask for it.
        await_waiters(&direct, "k", 0).await;
        proxy.set(Traffic::Flows);
        await_waiters(&direct, "k", 1).await;
        holder.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        support::await_free(&direct, "k").await;
    }
}
