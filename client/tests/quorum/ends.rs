//! Requests over a quorum that cannot succeed end with the reason; and how holds end.

use mortise_client::Error;
use mortise_harness::cmd;

use crate::support::quorum::Servers;
use crate::support::{client, eventually, ms, refuse};

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
    let lock = quorum.lock("k");
    let taken = tokio::time::timeout(LONG, lock.clone().acquire())
        .await
        .unwrap();
    let error = taken.map(drop).unwrap_err();
    assert!(error.to_string().contains("NOPERM"), "{error:?}");
}

#[tokio::test]
async fn a_closed_quorum_grants_nothing() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    quorum.close(ms(20_000)).await;
    let refused = quorum.lock("k").acquire().await.map(drop);
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
}

#[tokio::test]
async fn a_lock_that_is_kept_stays_taken_after_its_guard() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let guard = quorum.lock("k").acquire().await.unwrap();
    guard.keep_for(ms(600_000)).await.unwrap();
    assert!(quorum.lock("k").try_acquire().await.unwrap().is_none());
}

/// Its guard may still be relied on until its deadline, so that server grants the lock to nobody; but it does not renew it either.
#[tokio::test]
async fn a_server_that_still_has_a_lost_hold_frees_it_when_its_lease_ends() {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(1_000)).await;
    let guard = quorum.lock("k").lease(ms(4_000)).acquire().await.unwrap();
    eventually("all have granted", async || servers.taken("k").len() == 3).await;
    for server in &servers.0[..2] {
        cmd!(server.connect(), "DEL", "k");
    }
    // The client may learn of the third grant only now.
    eventually("the loss is noticed", async || {
        guard.renew().await.unwrap_err();
        !guard.is_valid()
    })
    .await;
    let direct = client(&servers.0[2]).await;
    eventually("its lease is over", || async {
        direct.info("k").await.unwrap().is_none()
    })
    .await;
    drop(guard);
}

#[tokio::test]
async fn closing_takes_no_longer_than_its_limit_when_a_server_has_died() {
    let mut servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(300)).await;
    let guard = quorum
        .lock("k")
        .lease(std::time::Duration::from_secs(3600))
        .acquire()
        .await
        .unwrap();
    eventually("all have granted", async || servers.taken("k").len() == 3).await;
    servers.0[1].sigkill();
    drop(guard);
    let began = std::time::Instant::now();
    assert!(
        !quorum.close(ms(1_000)).await,
        "the dead server has confirmed nothing"
    );
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    for node in [0, 2] {
        assert!(
            client(&servers.0[node])
                .await
                .info("k")
                .await
                .unwrap()
                .is_none()
        );
    }
}
