//! Requests over a quorum that cannot succeed end with the reason; and how holds end.

use mortise_harness::{cmd, is_nil};

use crate::support::quorum::{Servers, quorum_of, quorum_within};
use crate::support::{await_free, client, eventually, ms, refuse};

/// Longer than any of these requests takes.
const LONG: std::time::Duration = std::time::Duration::from_secs(20);

#[tokio::test]
async fn a_refused_fence_is_reported() {
    let mut servers = Servers::start(3);
    // The tokens of the two servers left differ, and what both would grant is not known, so the lower one needs a FENCE.
    servers.0[2].sigkill();
    let quorum = servers.builder().response_timeout(ms(500));
    let quorum = quorum.connect().await.unwrap();
    for server in &servers.0[..2] {
        refuse(server, "lock.fence");
    }
    let taken = tokio::time::timeout(LONG, quorum.lock("k").acquire()).await;
    let error = taken.unwrap().unwrap_err();
    assert!(error.to_string().contains("NOPERM"), "{error:?}");
}

#[tokio::test]
async fn a_lock_that_is_kept_stays_taken_after_its_guard() {
    let (_servers, quorum) = quorum_of(3).await;
    let guard = quorum.lock("k").acquire().await.unwrap();
    guard.keep_for(ms(600_000)).await.unwrap();
    assert!(quorum.lock("k").try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn a_lock_that_too_few_servers_keep_is_free_on_all_of_them() {
    let (servers, quorum) = quorum_of(3).await;
    let guard = quorum.lock("k").acquire().await.unwrap();
    servers.await_granted("k").await;
    for server in &servers.0[..2] {
        refuse(server, "lock.pass");
    }
    guard.keep_for(ms(600_000)).await.unwrap_err();
    servers.await_free("k").await;
}

/// Its guard may still be relied on until its deadline, so that server grants the lock to nobody; but it does not renew it either.
#[tokio::test]
async fn a_server_that_still_has_a_lost_hold_frees_it_when_its_lease_ends() {
    let (servers, quorum) = quorum_within(3, ms(1_000)).await;
    let guard = quorum.lock("k").lease(ms(4_000)).acquire().await.unwrap();
    servers.await_granted("k").await;
    for server in &servers.0[..2] {
        cmd!(server.connect(), "DEL", "k");
    }
    // The client may learn of the third grant only now.
    eventually("the loss is noticed", async || {
        guard.renew().await.unwrap_err();
        !guard.is_valid()
    })
    .await;
    await_free(&client(&servers.0[2]).await, "k").await;
    drop(guard);
}

#[tokio::test]
async fn closing_takes_no_longer_than_its_limit_when_a_server_has_died() {
    let (mut servers, quorum) = quorum_within(3, ms(300)).await;
    let lock = quorum.lock("k").lease(ms(3_600_000));
    let guard = lock.acquire().await.unwrap();
    servers.await_granted("k").await;
    servers.0[1].sigkill();
    drop(guard);
    let began = std::time::Instant::now();
    let closed = quorum.close(ms(1_000)).await;
    assert!(!closed, "the dead server has confirmed nothing");
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    for node in [0, 2] {
        assert!(is_nil(&cmd!(servers.0[node].connect(), "LOCK.INFO", "k")));
    }
}
