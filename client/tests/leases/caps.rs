//! `max_hold`: the guard ends in time, and so does the lease on the servers if the holder dies.

use std::time::Duration;

use mortise_client::{BootInstant, Client, Loss};

use crate::support::quorum::{Servers, quorum_within};
use crate::support::{assert_invalid, await_waiters, eventually, ms, start};

/// A lease may exceed the limit by the drift, so that the guard is valid up to the limit.
const DRIFT: Duration = Duration::from_millis(40);

async fn lease_of(client: &Client, key: &str) -> Duration {
    client.info(key).await.unwrap().unwrap().holds[0].lease
}

#[tokio::test]
async fn no_lease_on_the_server_exceeds_the_hold_limit() {
    let (_server, client) = start().await;
    let lock = client.lock("k").lease(ms(60_000)).max_hold(ms(3000));
    let first = lock.clone().acquire().await.unwrap();
    assert!(lease_of(&client, "k").await <= ms(3000) + DRIFT);
    let next = tokio::spawn(async move { lock.clone().acquire().await.unwrap() });
    await_waiters(&client, "k", 1).await;
    first.release().await.unwrap();
    let next = next.await.unwrap();
    assert!(lease_of(&client, "k").await <= ms(3000) + DRIFT);
    next.renew().await.unwrap();
    assert!(lease_of(&client, "k").await <= ms(3000) + DRIFT);
}

#[tokio::test]
async fn a_guard_with_a_limit_shorter_than_its_lease_is_valid_up_to_the_limit() {
    let (_server, client) = start().await;
    let lock = client.lock("k").lease(ms(60_000)).max_hold(ms(700));
    let before = BootInstant::now();
    let guard = lock.clone().acquire().await.unwrap();
    assert!(guard.deadline() >= before + ms(700), "{guard:?}");
    assert_eq!(guard.lost().await, Loss::HoldLimit);
}

#[tokio::test]
async fn an_upgrade_requests_no_lease_beyond_the_hold_limit() {
    let (_server, client) = start().await;
    let lock = client.lock("k").lease(ms(60_000)).max_hold(ms(5000));
    let asked = BootInstant::now();
    let guard = lock.clone().read().await.unwrap();
    let took = asked.elapsed();
    let is_later = async || guard.deadline().remaining() <= ms(4500);
    eventually("a part of the hold is over", is_later).await;
    guard.upgrade().await.unwrap();
    // The server counts from the grant, which may have been as late as the reply.
    assert!(lease_of(&client, "k").await <= ms(4500) + 2 * DRIFT + took);
    assert!(guard.deadline().remaining() <= ms(4500));
}

#[tokio::test]
async fn a_quorum_requests_no_lease_beyond_the_hold_limit() {
    let (servers, quorum) = quorum_within(3, ms(500)).await;
    let lock = quorum.lock("k").lease(ms(60_000)).max_hold(ms(4000));
    let guard = lock.clone().read().await.unwrap();
    assert_leases(&servers, ms(4000) + 2 * DRIFT).await;
    guard.renew().await.unwrap();
    assert_leases(&servers, ms(4000) + 2 * DRIFT).await;
    // One server may take a quarter of the limit to answer, as with a lease.
    assert_invalid(quorum.lock("b").max_hold(ms(1000)).acquire().await);
}

/// Checks every server that has granted "k"; one may not have done so yet.
async fn assert_leases(servers: &Servers, most: Duration) {
    for client in servers.clients().await {
        if let Some(info) = client.info("k").await.unwrap() {
            assert!(info.holds[0].lease <= most, "{info:?}");
        }
    }
}

#[tokio::test]
async fn a_lease_that_reaches_the_hold_limit_is_not_renewed() {
    let (server, client) = start().await;
    // The client relies on a lease for less than its length, so one of two seconds would not reach it.
    let lock = client.lock("k").lease(ms(3_000)).max_hold(ms(2_000));
    let guard = lock.clone().acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::HoldLimit);
    assert_eq!(server.calls("LOCK.RENEW"), 0);
}
