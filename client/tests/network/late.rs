//! Requests and changes that the client has abandoned, and that reach the server later: they change nothing.

use mortise_client::{Lock, Loss};
use mortise_harness::Server;

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{assert_holds, client, client_of, eventually, ms};

/// A lock with a lease of a minute, over a proxy.
async fn scene() -> (Server, Proxy, Lock) {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let mine = client_of(&proxy.url()).await;
    let lock = mine.lock("k").lease(ms(60_000));
    (server, proxy, lock)
}

#[tokio::test]
async fn an_acquisition_goes_on_over_another_connection_and_its_late_request_changes_nothing() {
    let (server, proxy, lock) = scene().await;
    proxy.set(Traffic::StallsOld);
    let guard = lock.acquire().await.unwrap();
    proxy.set(Traffic::Flows);
    assert_holds(guard, &server, "k").await;
}

#[tokio::test]
async fn a_late_upgrade_does_not_change_the_next_hold() {
    let (server, proxy, lock) = scene().await;
    let guard = lock.clone().read().await.unwrap();
    proxy.set(Traffic::StallsOld);
    // The outcome is unknown, so the hold ends.
    guard.upgrade().await.unwrap_err();
    assert_eq!(guard.loss(), Some(Loss::Unknown));
    let guard = lock.acquire().await.unwrap();
    proxy.set(Traffic::Flows);
    assert_holds(guard, &server, "k").await;
}

#[tokio::test]
async fn a_late_acquire_that_was_abandoned_takes_nothing() {
    let (server, proxy, lock) = scene().await;
    proxy.set(Traffic::StallsOld);
    lock.try_acquire().await.unwrap_err();
    await_calls(&server, "LOCK.LEAVE").await;
    proxy.set(Traffic::Flows);
    await_calls(&server, "LOCK.ACQUIRE").await;
    let direct = client(&server).await;
    let other = direct.lock("k").try_acquire().await.unwrap();
    assert!(other.is_some(), "{:?}", direct.info("k").await);
}

/// Waits until the server has run the command.
async fn await_calls(server: &Server, command: &str) {
    eventually(command, || async { server.calls(command) > 0 }).await;
}
