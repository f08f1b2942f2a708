//! The longest time to hold a lock: kept by the guard, and by the servers if its holder dies.

use std::time::Duration;

use mortise_client::{BootInstant, Client, Error, Loss, Owner};
use mortise_harness::Server;

use crate::support::quorum::Servers;
use crate::support::{PATIENCE, await_waiters, client, eventually, ms};

/// What the lease of a hold may exceed its limit by, so that it is believed in until then.
const DRIFT: Duration = Duration::from_millis(40);

async fn lease_of(client: &Client, key: &str) -> Duration {
    client.info(key).await.unwrap().unwrap().holds[0].lease
}

#[tokio::test]
async fn a_lower_limit_of_a_re_entry_ends_the_whole_hold() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("k").owner(&Owner::new()).reentrant();
    let outer = lock.clone().lease(ms(60_000)).acquire().await.unwrap();
    let inner = lock.max_hold(ms(300)).acquire().await.unwrap();
    let now = BootInstant::now();
    assert!(inner.deadline() <= now + ms(300), "{inner:?}");
    let lost = tokio::time::timeout(PATIENCE, outer.lost()).await;
    assert_eq!(lost, Ok(Loss::HoldLimit));
    assert_eq!(inner.loss(), Some(Loss::HoldLimit));
}

#[tokio::test]
async fn a_server_keeps_a_lock_whose_holder_died_no_longer_than_it_may_be_held() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(60_000)).max_hold(ms(3000));
    let first = lock.acquire().await.unwrap();
    assert!(lease_of(&client, "k").await <= ms(3000) + DRIFT);
    let next = tokio::spawn(async move { lock.acquire().await.unwrap() });
    await_waiters(&client, "k", 1).await;
    first.release().await.unwrap();
    let next = next.await.unwrap();
    assert!(lease_of(&client, "k").await <= ms(3000) + DRIFT);
    next.renew_for(ms(60_000)).await.unwrap();
    assert!(lease_of(&client, "k").await <= ms(3000) + DRIFT);
}

#[tokio::test]
async fn a_limit_shorter_than_the_lease_is_believed_in_to_its_end() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(60_000)).max_hold(ms(700));
    let before = BootInstant::now();
    let guard = lock.acquire().await.unwrap();
    assert!(guard.deadline() >= before + ms(700), "{guard:?}");
    assert_eq!(guard.lost().await, Loss::HoldLimit);
}

#[tokio::test]
async fn an_upgrade_asks_for_no_more_than_is_left_of_the_hold() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(60_000)).max_hold(ms(5000));
    let mut guard = lock.read().await.unwrap();
    let is_later = async || guard.deadline().remaining() <= ms(4500);
    eventually("a part of the hold is over", is_later).await;
    guard.upgrade().await.unwrap();
    assert!(lease_of(&client, "k").await <= ms(4500) + 2 * DRIFT);
    assert!(guard.deadline().remaining() <= ms(4500));
}

#[tokio::test]
async fn a_re_entry_without_a_limit_asks_for_no_more_than_is_left_of_the_outer_one() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("k").owner(&Owner::new()).reentrant();
    let lock = lock.lease(ms(60_000));
    let _outer = lock.clone().max_hold(ms(3000)).acquire().await.unwrap();
    let _inner = lock.acquire().await.unwrap();
    assert!(lease_of(&client, "k").await <= ms(3000) + DRIFT);
}

#[tokio::test]
async fn the_servers_of_a_quorum_are_asked_for_no_more_than_the_limit() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(500)).await;
    let lock = quorum.lock("k").lease(ms(60_000)).max_hold(ms(4000));
    let guard = lock.read().await.unwrap();
    assert_leases(&servers, ms(4000) + 2 * DRIFT).await;
    guard.renew_for(ms(60_000)).await.unwrap();
    assert_leases(&servers, ms(4000) + 2 * DRIFT).await;
    // As for a lease: one server may take a quarter of it.
    let brief = quorum.lock("b").max_hold(ms(1000)).acquire().await;
    assert!(matches!(brief, Err(Error::Invalid(_))), "{brief:?}");
}

/// Looks at every server that has granted "k"; one of them may not have done so yet.
async fn assert_leases(servers: &Servers, most: Duration) {
    for client in servers.clients().await {
        if let Some(info) = client.info("k").await.unwrap() {
            assert!(info.holds[0].lease <= most, "{info:?}");
        }
    }
}

#[tokio::test]
async fn a_hold_that_lasts_to_its_limit_is_not_renewed_in_vain() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(2_000)).max_hold(ms(2_000));
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::HoldLimit);
    let stats = server.info("commandstats");
    let renewals = stats.keys().filter(|it| it.contains("lock.renew"));
    assert_eq!(renewals.count(), 0);
}
