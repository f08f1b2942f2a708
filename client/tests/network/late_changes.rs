//! Like `late_network`, for an owner that holds: an abandoned change of its hold, or the LEAVE for a lost hold, arrives late and does
//! not end the owner's next hold.

use mortise_client::server::redis::{self, AsyncConnectionConfig};
use mortise_client::{Client, Error, IntoServer, Lock, Loss, Owner};
use mortise_harness::Server;
#[cfg(feature = "cluster")]
use mortise_harness::{Cluster, wait_for_sync};

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{assert_holds, client, client_of, ms};

/// A lock with an owner and a lease of a minute, over a proxy.
async fn scene() -> (Server, Proxy, Lock) {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let mine = client_of(&proxy.url()).await;
    let lock = mine.lock("k").owner(&Owner::new()).lease(ms(60_000));
    (server, proxy, lock)
}

#[tokio::test]
async fn a_late_leave_for_a_lost_hold_does_not_end_the_next_hold() {
    let (server, proxy, lock) = scene().await;
    let lock = lock.auto_renew(false);
    let old = lock.clone().lease(ms(500)).acquire().await.unwrap();
    old.lost().await;
    proxy.set(Traffic::StallsOld);
    let guard = match lock.acquire().await {
        Ok(guard) => guard,
        Err(_) => lock.acquire().await.unwrap(),
    };
    proxy.set(Traffic::Flows);
    assert_holds(guard, &server, "k").await;
}

#[tokio::test]
async fn a_late_upgrade_does_not_change_the_next_hold_of_its_owner() {
    let (server, proxy, lock) = scene().await;
    let mut guard = lock.read().await.unwrap();
    proxy.set(Traffic::StallsOld);
    // The outcome is unknown, so the hold ends.
    let failed = guard.upgrade().await.unwrap_err();
    assert_eq!((failed.left, guard.loss()), (None, Some(Loss::Unknown)));
    let guard = lock.acquire().await.unwrap();
    proxy.set(Traffic::Flows);
    assert_holds(guard, &server, "k").await;
}

#[tokio::test]
async fn a_late_acquire_on_a_connection_of_the_application_does_not_change_the_next_hold() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    // The connection has its own time limit, and ends before the client's.
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(ms(2000)));
    let shared = redis::Client::open(proxy.url()).unwrap();
    let shared = shared.get_multiplexed_async_connection_with_config(&patient);
    let shared = shared.await.unwrap();
    let over = proxy.url().into_server().unwrap().over(shared);
    let builder = Client::builder(over).unwrap();
    let mine = builder
        .response_timeout(ms(10_000))
        .connect()
        .await
        .unwrap();
    let lock = mine.lock("k").owner(&Owner::new()).lease(ms(60_000));
    proxy.set(Traffic::StallsOld);
    lock.acquire().await.unwrap_err();
    let guard = lock.acquire().await.unwrap();
    proxy.set(Traffic::Flows);
    assert_holds(guard, &server, "k").await;
}

#[tokio::test]
async fn a_request_is_repeated_if_an_earlier_one_on_the_connection_of_the_application_times_out() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(ms(2000)));
    let shared = redis::Client::open(proxy.url()).unwrap();
    let shared = shared.get_multiplexed_async_connection_with_config(&patient);
    let shared = shared.await.unwrap();
    let over = proxy.url().into_server().unwrap().over(shared);
    let builder = Client::builder(over).unwrap();
    let builder = builder.response_timeout(ms(10_000));
    let mine = builder.connect().await.unwrap();
    proxy.set(Traffic::StallsOld);
    let early = mine.lock("early");
    let early = tokio::spawn(async move { early.acquire().await });
    // Well before the early one times out. If this takes longer, there is nothing to repeat.
    tokio::time::sleep(ms(1_000)).await;
    let late = mine.lock("late").acquire().await.unwrap();
    let error = early.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Connection { error, .. } if error.is_timeout()));
    assert!(late.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lost_hold_released_just_before_the_next_acquire_leaves_nothing() {
    let (server, proxy, lock) = scene().await;
    let lock = lock.auto_renew(false);
    let old = lock.clone().lease(ms(1_000)).write().await.unwrap();
    proxy.set(Traffic::LosesReplies);
    old.renew_for(ms(60_000)).await.unwrap_err();
    proxy.set(Traffic::Flows);
    old.lost().await;
    let new = tokio::spawn(async move {
        drop(old);
        lock.read().await.unwrap()
    });
    let new = new.await.unwrap();
    tokio::time::sleep(ms(1_000)).await;
    let direct = client(&server).await;
    let reader = direct.lock("k").try_read().await.unwrap();
    assert!(reader.is_some(), "a reader blocks another: {new:?}");
}

#[cfg(feature = "cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_lost_its_lock_in_a_failover_can_acquire_again() {
    let node = || Server::builder().config("cluster-node-timeout", "2000");
    let mut cluster = Cluster::start_with_replicas(3, node);
    let seeds = mortise_client::Server::cluster(cluster.nodes().map(Server::url)).unwrap();
    let client = Client::connect(seeds).await.unwrap();
    let lock = client.lock("key").lease(ms(1_500)).owner(&Owner::new());
    let guard = lock.acquire().await.unwrap();
    let home = cluster.home_of("key");
    wait_for_sync(&cluster.primaries[home], &cluster.replicas[home]);
    cluster.primaries[home].sigkill();
    guard.lost().await;
    let again = lock.wait(ms(60_000)).acquire().await;
    drop(guard);
    assert!(again.is_ok(), "{again:?}");
}

#[tokio::test]
async fn an_owner_acquires_again_though_its_first_connection_hangs_for_ever() {
    let (server, proxy, lock) = scene().await;
    let lock = lock.lease(ms(1_000));
    proxy.set(Traffic::StallsOld);
    lock.acquire().await.unwrap_err();
    // A little longer than TCP may take to give up.
    let guard = lock.wait(ms(60_000)).acquire().await.unwrap();
    assert_holds(guard, &server, "k").await;
}
