//! A server of a quorum that hangs while others want the lock, too: once a majority has answered, nobody waits for it.

use mortise_client::Error;

use crate::support::quorum::Servers;
use crate::support::{PATIENCE, client, eventually, ms};

const HANGS: usize = 0;

/// Waits until somebody queues for a key on a server.
async fn await_waiter(servers: &Servers, node: usize, key: &str) {
    let client = client(&servers.0[node]).await;
    eventually("somebody queues", async || {
        let info = client.info(key).await.unwrap();
        info.is_some_and(|info| info.waiters == 1)
    })
    .await;
}

#[tokio::test]
async fn a_taken_lock_is_queued_for_without_waiting_for_a_server_that_hangs() {
    let servers = Servers::start(3);
    // Longer than the test has patience for.
    let quorum = servers.quorum_with(PATIENCE + ms(3000)).await;
    servers.occupy(&[1, 2], "k", 60_000);
    servers.0[HANGS].stop_signal();

    let lock = quorum.lock("k").lease(ms(60_000));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    await_waiter(&servers, 1, "k").await;
    servers.vacate(&[1, 2], "k");
    assert!(waiting.await.unwrap().unwrap().is_valid());
}

#[tokio::test]
async fn a_tie_beside_a_server_that_hangs_waits_for_it_once() {
    let servers = Servers::start(3);
    // Waiting for it twice is more than the test has patience for.
    let quorum = servers.quorum_with(ms(6000)).await;
    servers.occupy(&[2], "k", 60_000);
    servers.0[HANGS].stop_signal();

    let lock = quorum.lock("k").lease(ms(60_000));
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    await_waiter(&servers, 2, "k").await;
    servers.vacate(&[2], "k");
    let guard = waiting.await.unwrap().unwrap();

    // Who comes now knows already.
    let busy = tokio::time::timeout(ms(5000), lock.wait(ms(1)).acquire()).await;
    assert!(matches!(busy, Ok(Err(Error::Busy { .. }))), "{busy:?}");
    guard.release().await.unwrap();
}
