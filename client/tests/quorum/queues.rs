//! What a quorum offers beyond the algorithm: both modes, queues and cancellation; and its behaviour in partitions.

use std::time::{Duration, Instant};

use mortise_client::{Client, Error, Loss, Mode, Quorum};
use mortise_harness::Server;
use tokio::task::JoinSet;

use crate::support::proxy::{Proxy, Traffic};
use crate::support::quorum::{Servers, connect, patient, quorum_of, quorum_within};
use crate::support::{assert_lost, ms};

#[tokio::test]
async fn readers_share_a_quorum_and_writers_do_not() {
    let (_servers, quorum) = quorum_of(3).await;
    let first = quorum.lock("k").read().await.unwrap();
    let second = quorum.lock("k").read().await.unwrap();
    assert!(second.token() > first.token());
    assert!(quorum.lock("k").try_acquire().await.unwrap().is_none());
    assert!(first.is_valid() && second.is_valid());
    drop((first, second));
    let writer = quorum.lock("k").acquire().await.unwrap();
    assert!(quorum.lock("k").try_read().await.unwrap().is_none());
    drop(writer);
}

#[tokio::test]
async fn an_upgrade_and_a_downgrade_over_a_quorum_are_refused_and_change_nothing() {
    let (servers, quorum) = quorum_within(3, ms(600)).await;
    let reader = quorum.lock("k").lease(ms(2500)).read().await.unwrap();
    let refused = reader.upgrade().await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)));
    assert!(refused.to_string().contains("release"), "{refused}");
    let token = reader.token();
    reader.renew().await.unwrap();
    assert!(quorum.lock("k").try_read().await.unwrap().is_some());
    assert_eq!((reader.mode(), reader.token()), (Mode::Read, token));
    reader.release().await.unwrap();
    servers.await_free("k").await;
    let writer = quorum.lock("k").acquire().await.unwrap();
    let refused = writer.downgrade().await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)));
    assert_eq!(writer.mode(), Mode::Write);
    writer.release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_for_a_quorum_queues_on_one_server_and_is_granted_by_hand_off() {
    let (servers, quorum) = quorum_of(3).await;
    let guard = quorum.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(quorum.lock("k").acquire());
    servers.await_waiter(&[0, 1, 2], "k").await;
    guard.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_valid());
}

#[tokio::test]
async fn a_waiter_on_a_server_that_falls_silent_queues_on_another() {
    let (servers, quorum) = quorum_within(3, ms(150)).await;
    let guard = quorum.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(quorum.lock("k").acquire());
    let silent = servers.await_waiter(&[0, 1, 2], "k").await;
    servers.0[silent].stop_signal();
    let others: Vec<_> = (0..3).filter(|node| *node != silent).collect();
    servers.await_waiter(&others, "k").await;
    let _ = guard.release().await;
    assert!(waiting.await.unwrap().unwrap().is_valid());
    servers.0[silent].cont_signal();
}

#[tokio::test]
async fn a_partitioned_majority_is_a_loss_and_its_return_frees_the_lock() {
    let servers = Servers::start(3);
    let proxies = servers.proxies().await;
    let quorum = connect(proxies.iter().map(Proxy::url), ms(500)).await;
    let lock = quorum.lock("k").lease(ms(2_000)).wait(ms(30_000));
    let guard = lock.clone().acquire().await.unwrap();
    for proxy in &proxies[..2] {
        proxy.set(Traffic::Stalls);
    }
    assert_eq!(guard.lost().await, Loss::Expired);
    assert_lost(guard.release().await, None);
    for proxy in &proxies {
        proxy.set(Traffic::Flows);
    }
    servers.await_free("k").await;
    assert!(lock.clone().acquire().await.unwrap().is_valid());
}

#[tokio::test]
async fn one_server_under_three_addresses_is_refused_as_a_quorum() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let localhost = format!("redis://localhost:{}/", server.port());
    let builder = patient(Quorum::builder([server.url(), localhost, proxy.url()]).unwrap());
    let quorum = builder.response_timeout(ms(4_000)).connect().await;
    let error = quorum.unwrap_err();
    assert!(matches!(&error, Error::Invalid(_)), "{error:?}");
    assert!(error.to_string().contains("the same server"), "{error}");
}

#[tokio::test]
async fn a_quorum_may_consist_of_primaries_that_sentinels_name() {
    // No Sentinel runs there.
    let groups =
        ["a", "b", "c"].map(|name| Client::sentinel(["redis://127.0.0.1:1/"], name).unwrap());
    let error = Quorum::of(groups).unwrap().connect().await.unwrap_err();
    let is_it = matches!(&error, Error::NoQuorum { nodes, .. } if nodes.len() == 3);
    assert!(is_it, "{error:?}");
}

/// Acquires a lock again and again for so long. Returns how often.
async fn contend(quorum: Quorum, time: Duration) -> u32 {
    let until = Instant::now() + time;
    let mut count = 0;
    while Instant::now() < until {
        let guard = quorum.lock("k").lease(ms(10_000)).acquire().await.unwrap();
        count += 1;
        // A server that hangs meanwhile does not answer.
        let _ = guard.release().await;
    }
    count
}

/// How often each has acquired it.
async fn counts(contending: JoinSet<u32>) -> Vec<u32> {
    let all = tokio::time::timeout(ms(40_000), contending.join_all()).await;
    all.expect("nobody hangs")
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_list_the_servers_in_different_orders_do_not_wait_for_each_other() {
    let servers = Servers::start(3);
    let mut urls = servers.urls();
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        urls.rotate_left(1);
        urls.swap(0, 1);
        clients.spawn(contend(connect(&urls, ms(1_000)).await, ms(6_000)));
    }
    let counts = counts(clients).await;
    assert!(counts.iter().all(|count| *count >= 5), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_starves_nobody_who_waits() {
    let servers = Servers::start(3);
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        clients.spawn(contend(servers.quorum_with(ms(100)).await, ms(8_000)));
    }
    tokio::time::sleep(ms(1_000)).await;
    servers.0[0].stop_signal();
    let counts = counts(clients).await;
    servers.0[0].cont_signal();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 0 && most / least < 10, "{counts:?}");
}

#[tokio::test]
async fn a_wait_ends_by_its_limit_also_where_some_of_the_servers_have_granted() {
    let (servers, quorum) = quorum_of(3).await;
    for (free, key) in ["a", "b", "c"].into_iter().enumerate() {
        let taken: Vec<usize> = (0..3).filter(|server| *server != free).collect();
        servers.occupy(&taken, key, 120_000);
        let asked = Instant::now();
        let lock = quorum.lock(key).lease(ms(120_000)).wait(ms(300));
        let error = lock.acquire().await.unwrap_err();
        assert!(error.is_busy(), "{error}");
        assert!(asked.elapsed() < ms(20_000), "a third of the lease");
    }
}
