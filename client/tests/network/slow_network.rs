//! Networks that are slow or split: what a guard may believe then, what a quorum may hand out, and what it costs.

use std::time::{Duration, Instant};

use mortise_client::{BootInstant, Error, Loss, NodeReason, Quorum};
use mortise_harness::Server;

use crate::support::dropping::poll_once;
use crate::support::proxy::{Proxy, Traffic};
use crate::support::quorum::Servers;
use crate::support::{self, await_waiters, client, client_of, ms};

/// What may be believed of a lease from when its request was sent.
fn validity(lease: Duration) -> Duration {
    lease - lease / 100 - ms(2)
}

async fn proxies(servers: &Servers) -> Vec<Proxy> {
    let mut proxies = Vec::new();
    for server in &servers.0 {
        proxies.push(Proxy::of(server).await);
    }
    proxies
}

async fn quorum_over(proxies: &[Proxy], node_timeout: Duration) -> Quorum {
    let quorum = Quorum::builder(proxies.iter().map(Proxy::url)).unwrap();
    let quorum = quorum.node_timeout(node_timeout).connect().await.unwrap();
    // All connections are there, those of the slowest, too.
    loop {
        let answers = quorum.info("k").await;
        if answers.iter().all(|there| there.answer.is_ok()) {
            return quorum;
        }
    }
}

#[tokio::test]
async fn belief_is_counted_from_when_the_request_was_sent_not_from_when_the_answer_came() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let slow = mortise_client::Client::connect(proxy.url()).await.unwrap();
    let lease = ms(60_000);
    let lock = slow.lock("k").lease(lease).auto_renew(false);
    let way = ms(150);
    proxy.set(Traffic::Takes(way));
    let latest = || BootInstant::now() + validity(lease);
    let guard = lock.acquire().await.unwrap();
    assert!(guard.deadline() + way * 2 <= latest());
    guard.renew().await.unwrap();
    assert!(guard.deadline() + way * 2 <= latest());
    // Handed over by another, and confirmed.
    let waiting = tokio::spawn({
        let lock = lock.clone().lease(ms(3000));
        async move {
            let guard = lock.acquire().await.unwrap();
            (guard.deadline(), BootInstant::now(), guard)
        }
    });
    await_waiters(&client(&server).await, "k", 1).await;
    tokio::time::sleep(ms(400)).await;
    guard.release().await.unwrap();
    let (deadline, had, guard) = waiting.await.unwrap();
    assert!(guard.is_valid());
    assert!(deadline + way * 2 <= had + validity(ms(3000)));
}

#[tokio::test]
async fn belief_over_a_quorum_is_counted_from_the_earliest_request() {
    let servers = Servers::start(3);
    let proxies = proxies(&servers).await;
    let quorum = quorum_over(&proxies, ms(5000)).await;
    let lease = ms(60_000);
    let lock = quorum.lock("k").lease(lease).auto_renew(false);
    for (n, proxy) in proxies.iter().enumerate() {
        proxy.set(Traffic::Takes(ms(n as u64 * 150)));
    }
    // The majority is there with the second answer.
    let guard = lock.acquire().await.unwrap();
    assert!(guard.deadline() + ms(300) <= BootInstant::now() + validity(lease));
    guard.renew().await.unwrap();
    assert!(guard.deadline() + ms(300) <= BootInstant::now() + validity(lease));
}

#[tokio::test]
async fn a_quorum_that_answers_too_late_is_not_handed_out_and_is_released_everywhere() {
    let servers = Servers::start(3);
    let proxies = proxies(&servers).await;
    let quorum = quorum_over(&proxies, ms(100)).await;
    for proxy in &proxies {
        proxy.set(Traffic::Takes(ms(200)));
    }
    let error = quorum.lock("k").lease(ms(400)).acquire().await.unwrap_err();
    let Error::NoQuorum {
        granted: 0, nodes, ..
    } = &error
    else {
        panic!("{error:?}");
    };
    // A connection that is late is given up where another one is open before it answers.
    let late = |it: &mortise_client::NodeFailure| match &it.reason {
        NodeReason::Silent => true,
        NodeReason::Failed(error) => matches!(**error, Error::Connection { .. }),
        _ => false,
    };
    assert!(nodes.len() == 3 && nodes.iter().all(late), "{error}");
    // What was granted unheard is released behind it, long before its lease is over.
    let patient = quorum.lock("k").lease(ms(60_000));
    assert!(patient.acquire().await.is_err());
    servers.await_free("k").await;
}

/// The process is stopped at each point of an acquisition for longer than the lease: as good as it can be done from
/// inside of it, by a thread that sleeps while it should run the tasks.
#[tokio::test]
async fn a_quorum_that_was_won_before_the_process_slept_is_not_handed_out_after_it() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(100)).await;
    let lease = ms(400);
    let lock = quorum.lock("k").lease(lease).wait(ms(20_000));
    for steps in [0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 25] {
        let mut acquire = Box::pin(lock.acquire());
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
async fn a_slow_minority_costs_nothing() {
    let servers = Servers::start(3);
    let proxies = proxies(&servers).await;
    let quorum = quorum_over(&proxies, ms(8000)).await;
    let lock = quorum.lock("k").lease(ms(60_000));
    let way = ms(3000);
    proxies[0].set(Traffic::Takes(way));
    let started = Instant::now();
    let guard = lock.acquire().await.unwrap();
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    assert!(started.elapsed() < way, "{:?}", started.elapsed());
    proxies[0].set(Traffic::Flows);
    servers.await_free("k").await;
}

#[tokio::test]
async fn on_the_other_side_of_a_partition_nobody_gets_in_before_the_holder_knows_that_it_has_lost()
{
    let servers = Servers::start(5);
    let proxies = proxies(&servers).await;
    let near = quorum_over(&proxies, ms(200)).await;
    let far = servers.quorum_with(ms(200)).await;
    for traffic in [Traffic::Cut, Traffic::Stalls, Traffic::LosesReplies] {
        let guard = near.lock("k").lease(ms(1500)).acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = far.lock("k").lease(ms(10_000)).wait(ms(30_000));
            async move { lock.acquire().await.unwrap() }
        });
        // On the first server that has answered, which on a busy machine may be any.
        support::eventually("somebody queues", || async {
            let waiters = |it: &Server| it.gauge("waiters");
            servers.0.iter().map(waiters).sum::<i64>() > 0
        })
        .await;
        for proxy in &proxies[..3] {
            proxy.set(traffic);
        }
        let other = waiting.await.unwrap();
        assert!(!guard.is_valid(), "two hold the lock: {traffic:?}");
        assert!(other.is_valid() && other.token() > guard.token());
        drop(guard);
        for proxy in &proxies {
            proxy.set(Traffic::Flows);
        }
        // What the loser gives back late does not hit the other one.
        assert!(other.renew().await.is_ok());
        other.release().await.unwrap();
        servers.await_free("k").await;
    }
}

#[tokio::test]
async fn a_waiter_whose_connection_is_cut_or_falls_silent_gets_an_error_and_leaves_no_waiter() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let (behind, direct) = (client_of(&proxy.url()).await, client(&server).await);
    for traffic in [Traffic::Cut, Traffic::Stalls] {
        let holder = direct.lock("k").acquire().await.unwrap();
        let waiting = tokio::spawn({
            let lock = behind.lock("k");
            async move { lock.acquire().await }
        });
        await_waiters(&direct, "k", 1).await;
        proxy.set(traffic);
        let error = waiting.await.unwrap().unwrap_err();
        assert!(
            matches!(error, Error::Connection { .. }),
            "{traffic:?}: {error:?}"
        );
        proxy.set(Traffic::Flows);
        await_waiters(&direct, "k", 0).await;
        holder.release().await.unwrap();
        support::await_free(&direct, "k").await;
    }
}
