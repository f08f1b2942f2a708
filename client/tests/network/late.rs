//! Requests that the client has abandoned and that reach the server later, and requests whose replies are lost: they change nothing.

use mortise_client::{Client, Error, Lock, Loss};
use mortise_harness::Server;

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{assert_holds, await_free, client, eventually, ms, start_behind_proxy};

/// A lock with a lease of a minute, over a proxy.
async fn scene() -> (Server, Proxy, Lock) {
    let (server, proxy, mine) = start_behind_proxy().await;
    let lock = mine.lock("k").lease(ms(60_000));
    (server, proxy, lock)
}

/// Loses the reply to a request, and then its connection, over which the client is connected before.
async fn lose<T>(client: &Client, proxy: &Proxy, request: impl Future<Output = Result<T, Error>>) {
    eventually("it is connected", async || client.info("k").await.is_ok()).await;
    proxy.set(Traffic::LosesReplies);
    let error = request.await.map(drop).unwrap_err();
    assert!(matches!(error, Error::Connection { .. }), "{error:?}");
    proxy.set(Traffic::Cut);
    proxy.set(Traffic::Flows);
}

#[tokio::test]
async fn a_request_whose_reply_is_lost_leaves_nothing_behind() {
    let (server, proxy, mine) = start_behind_proxy().await;
    let lock = mine.lock("k").lease(ms(60_000));
    let direct = client(&server).await;
    let given = direct.lock("k").acquire().await.unwrap();
    let token = given.pass_to("heir", ms(600_000)).await.unwrap();
    let brief = lock.clone().wait(ms(50));
    lose(&mine, &proxy, brief.clone().take_over("heir", token)).await;
    await_free(&direct, "k").await;
    lose(&mine, &proxy, brief.acquire()).await;
    await_free(&direct, "k").await;
    let guard = lock.acquire().await.unwrap();
    lose(&mine, &proxy, guard.pass_to("heir", ms(60_000))).await;
    assert_eq!(guard.loss(), Some(Loss::Unknown));
    // Under both names.
    await_free(&direct, "k").await;
}

#[tokio::test]
async fn several_locks_whose_grant_is_lost_are_all_released() {
    let (server, proxy, mine) = start_behind_proxy().await;
    let direct = client(&server).await;
    let keys = ["a", "b", "c"];
    let locks = mine.locks(keys).lease(ms(60_000));
    lose(&mine, &proxy, locks.try_acquire()).await;
    for key in keys {
        await_free(&direct, key).await;
    }
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
