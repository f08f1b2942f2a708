//! Like `late_network`, for an owner that holds: what was given up of a change of its hold, and the word that a lost hold is
//! to be forgotten, hit nothing that comes after.

use mortise_client::server::redis;
use mortise_client::{Client, IntoServer, Lock, Loss, Owner};
use mortise_harness::Server;
#[cfg(feature = "cluster")]
use mortise_harness::{Cluster, wait_for_sync};

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{assert_holds, client, client_of, ms};

/// A lock of a named owner for a minute, over a proxy.
async fn scene() -> (Server, Proxy, Lock) {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let mine = client_of(&proxy.url()).await;
    let lock = mine.lock("k").owner(&Owner::new()).lease(ms(60_000));
    (server, proxy, lock)
}

#[tokio::test]
async fn a_word_to_forget_that_comes_late_does_not_hit_what_is_taken_after_it() {
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
async fn an_upgrade_that_comes_late_does_not_hit_what_its_owner_takes_after_the_release() {
    let (server, proxy, lock) = scene().await;
    let mut guard = lock.read().await.unwrap();
    proxy.set(Traffic::StallsOld);
    // What became of it is not known, so nothing of it is kept.
    let failed = guard.upgrade().await.unwrap_err();
    assert_eq!((failed.left, guard.loss()), (None, Some(Loss::Unknown)));
    let guard = lock.acquire().await.unwrap();
    proxy.set(Traffic::Flows);
    assert_holds(guard, &server, "k").await;
}

#[tokio::test]
async fn an_acquire_that_comes_late_on_a_given_connection_hits_nothing() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    // It has a time limit of its own.
    let shared = redis::Client::open(proxy.url()).unwrap();
    let shared = shared.get_multiplexed_async_connection().await.unwrap();
    let over = proxy.url().into_server().unwrap().over(shared);
    let builder = Client::builder(over).unwrap();
    let mine = builder.response_timeout(ms(500)).connect().await.unwrap();
    let lock = mine.lock("k").owner(&Owner::new()).lease(ms(60_000));
    proxy.set(Traffic::StallsOld);
    lock.acquire().await.unwrap_err();
    let guard = lock.acquire().await.unwrap();
    proxy.set(Traffic::Flows);
    assert_holds(guard, &server, "k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_lost_hold_given_back_just_before_it_is_taken_anew_leaves_nothing() {
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
    assert!(reader.is_some(), "kept out by a reader {new:?}");
}

#[cfg(feature = "cluster")]
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_has_lost_its_lock_to_a_failover_asks_again() {
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
async fn a_connection_that_hangs_for_ever_does_not_keep_an_owner_out_for_ever() {
    let (server, proxy, lock) = scene().await;
    let lock = lock.lease(ms(1_000));
    proxy.set(Traffic::StallsOld);
    lock.acquire().await.unwrap_err();
    // As long as TCP may take to give up, and some.
    let guard = lock.wait(ms(60_000)).acquire().await.unwrap();
    assert_holds(guard, &server, "k").await;
}
