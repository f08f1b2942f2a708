//! A server of a quorum hangs while clients compete for a lock: once a majority has replied, no client waits for that server.

use crate::support::quorum::quorum_within;
use crate::support::{PATIENCE, ms};
use mortise_client::Error;

const HANGS: usize = 0;

#[tokio::test]
async fn a_request_for_a_taken_lock_queues_without_waiting_for_a_hanging_server() {
    // Longer than the test waits.
    let (servers, quorum) = quorum_within(3, PATIENCE + ms(3000)).await;
    servers.occupy(&[1, 2], "k", 60_000);
    servers.0[HANGS].stop_signal();

    let waiting = tokio::spawn(quorum.lock("k").lease(ms(60_000)).acquire());
    servers.await_waiter(&[1, 2], "k").await;
    servers.vacate(&[1, 2], "k");
    assert!(waiting.await.unwrap().unwrap().is_valid());
}

#[tokio::test]
async fn a_tie_waits_only_once_for_a_hanging_server() {
    // The test does not wait long enough for the hanging server twice.
    let (servers, quorum) = quorum_within(3, ms(6000)).await;
    servers.occupy(&[2], "k", 60_000);
    servers.0[HANGS].stop_signal();

    let lock = quorum.lock("k").lease(ms(60_000));
    let waiting = tokio::spawn(lock.clone().acquire());
    servers.await_waiter(&[2], "k").await;
    servers.vacate(&[2], "k");
    let guard = waiting.await.unwrap().unwrap();

    // The next request does not wait for that server.
    let busy = tokio::time::timeout(ms(5000), lock.wait(ms(1)).acquire()).await;
    assert!(matches!(busy, Ok(Err(Error::Busy { .. }))), "{busy:?}");
    guard.release().await.unwrap();
}
