//! A server of a quorum hangs while clients compete for a lock: once a majority has replied, no client waits for that server.

use mortise_client::Error;

use crate::support::quorum::Servers;
use crate::support::{PATIENCE, client, eventually, ms};

const HANGS: usize = 0;

/// Waits until a request queues for a key on a server.
async fn await_waiter(servers: &Servers, node: usize, key: &str) {
    let client = client(&servers.0[node]).await;
    eventually("a request queues", async || {
        let info = client.info(key).await.unwrap();
        info.is_some_and(|info| info.waiters == 1)
    })
    .await;
}

#[tokio::test]
async fn a_request_for_a_taken_lock_queues_without_waiting_for_a_hanging_server() {
    let servers = Servers::start(3);
    // Longer than the test waits.
    let quorum = servers.quorum_with(PATIENCE + ms(3000)).await;
    servers.occupy(&[1, 2], "k", 60_000);
    servers.0[HANGS].stop_signal();

    let lock = quorum.lock("k").lease(ms(60_000));
    let waiting = tokio::spawn(async move { lock.acquire().await });
    servers.await_waiter(&[1, 2], "k").await;
    servers.vacate(&[1, 2], "k");
    assert!(waiting.await.unwrap().unwrap().is_valid());
}

#[tokio::test]
async fn a_tie_waits_only_once_for_a_hanging_server() {
    let servers = Servers::start(3);
    // The test does not wait long enough for the hanging server twice.
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

    // The next request does not wait for that server.
    let busy = tokio::time::timeout(ms(5000), lock.wait(ms(1)).acquire()).await;
    assert!(matches!(busy, Ok(Err(Error::Busy { .. }))), "{busy:?}");
    guard.release().await.unwrap();
}
