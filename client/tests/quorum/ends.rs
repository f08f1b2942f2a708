//! Requests over a quorum that cannot succeed end with the reason; and how holds end.

use mortise_client::{Error, Owner};
use mortise_harness::cmd;

use crate::support::quorum::Servers;
use crate::support::{client, eventually, ms, refuse};

/// Longer than any of these requests takes.
const LONG: std::time::Duration = std::time::Duration::from_secs(20);

/// A client and its lock, granted by the first two servers. Since then the second has stopped, and the third, which was
/// down, has started.
async fn known_to_a_minority(
    owner: Option<&Owner>,
) -> (Servers, mortise_client::Lock, mortise_client::Guard) {
    let mut servers = Servers::start(3);
    let quorum = servers.quorum().await;
    servers.0[2].sigkill();
    let lock = quorum.lock("k").lease(ms(10_000));
    let lock = match owner {
        Some(owner) => lock.owner(owner).reentrant(),
        None => lock,
    };
    let guard = lock.acquire().await.unwrap();
    servers.0[2].start_again();
    servers.warm(&quorum).await;
    servers.0[1].sigkill();
    (servers, lock, guard)
}

#[tokio::test]
async fn re_entry_ends_when_the_majority_that_knows_the_hold_is_gone() {
    let (_servers, lock, _guard) = known_to_a_minority(Some(&Owner::new())).await;
    let again = tokio::time::timeout(LONG, lock.acquire()).await.unwrap();
    let error = again.map(drop).unwrap_err();
    assert!(
        matches!(error, Error::NoQuorum { .. } | Error::Lost(_)),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_refused_fence_is_reported() {
    let mut servers = Servers::start(3);
    // The tokens of the two servers left differ, and what both would grant is not known, so the lower one needs a FENCE.
    servers.0[2].sigkill();
    let quorum = servers.builder().node_timeout(ms(500));
    let quorum = quorum.connect().await.unwrap();
    for server in &servers.0[..2] {
        refuse(server, "lock.fence");
        refuse(server, "info");
    }
    let lock = quorum.lock("k");
    let taken = tokio::time::timeout(LONG, lock.acquire()).await.unwrap();
    let error = taken.map(drop).unwrap_err();
    assert!(error.to_string().contains("NOPERM"), "{error:?}");
}

#[tokio::test]
async fn a_closed_quorum_grants_nothing() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    quorum.close().await;
    let refused = quorum.lock("k").acquire().await.map(drop);
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
}

#[tokio::test]
async fn a_released_lock_stays_taken_for_its_least_time() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let lock = quorum.lock("k").at_least(ms(600_000));
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(quorum.lock("k").try_acquire().await.unwrap().is_none());
}

/// Its guard may still be relied on until its deadline, so that server grants the lock to nobody; but it does not renew it either.
#[tokio::test]
async fn a_server_that_still_has_a_lost_hold_frees_it_when_its_lease_ends() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(1_000)).await;
    let guard = quorum.lock("k").lease(ms(4_000)).acquire().await.unwrap();
    for server in &servers.0[..2] {
        cmd!(server.connect(), "DEL", "k");
    }
    guard.renew().await.unwrap_err();
    assert!(!guard.is_valid());
    let direct = client(&servers.0[2]).await;
    eventually("its lease is over", || async {
        direct.info("k").await.unwrap().is_none()
    })
    .await;
    drop(guard);
}
