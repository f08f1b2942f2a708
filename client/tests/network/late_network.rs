//! Abandoned requests that reach the server after their owner has asked again: undoing the first request does not end the hold of the
//! second.

use mortise_client::{Owner, Quorum};
use mortise_harness::Server;

use crate::support::proxy::{Proxy, Traffic};
use crate::support::quorum::Servers;
use crate::support::{assert_holds, await_waiters, client, client_of, eventually, ms};

#[tokio::test]
async fn a_late_acquire_does_not_change_the_next_hold_of_its_owner() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let mine = client_of(&proxy.url()).await;
    let lock = mine.lock("k").owner(&Owner::new()).lease(ms(60_000));
    proxy.set(Traffic::StallsOld);
    lock.acquire().await.unwrap_err();
    let guard = lock.acquire().await.unwrap();
    proxy.set(Traffic::Flows);
    assert_holds(guard, &server, "k").await;
}

#[tokio::test]
async fn a_late_acquire_that_was_abandoned_takes_nothing() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let mine = client_of(&proxy.url()).await;
    proxy.set(Traffic::StallsOld);
    let lock = mine.lock("k").lease(ms(600_000));
    lock.acquire().await.unwrap_err();
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

#[tokio::test]
async fn an_owner_whose_abandoned_request_is_on_a_broken_connection_can_acquire_again() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let mine = client_of(&proxy.url()).await;
    let lock = mine.lock("k").owner(&Owner::new()).lease(ms(60_000));
    proxy.set(Traffic::Stalls);
    lock.acquire().await.unwrap_err();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    proxy.set(Traffic::Cut);
    proxy.set(Traffic::Flows);
    let guard = waiting.await.unwrap().unwrap();
    assert_holds(guard, &server, "k").await;
}

#[tokio::test]
async fn a_late_undo_does_not_remove_the_next_round_of_a_waiter_from_the_queue() {
    let servers = Servers::start(5);
    let clients = servers.clients().await;
    let proxy = Proxy::of(&servers.0[4]).await;
    let mut urls = servers.urls();
    urls[4] = proxy.url();
    let mine = Quorum::builder(urls).unwrap().node_timeout(ms(500));
    let mine = mine.connect().await.unwrap();
    servers.warm(&mine).await;
    let others = servers.quorum().await;
    servers.occupy(&[0, 1, 2, 3], "k", 60_000);
    let lock = mine.lock("k").lease(ms(60_000));
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    await_waiters(&clients[0], "k", 1).await;
    proxy.set(Traffic::StallsOld);
    servers.vacate(&[0], "k");
    await_waiters(&clients[1], "k", 1).await;
    // Meanwhile the client undoes the request over another connection.
    tokio::time::sleep(ms(2_000)).await;
    servers.vacate(&[1], "k");
    eventually("it queues on the third, or has a majority", || async {
        let third = clients[2].info("k").await.unwrap();
        acquiring.is_finished() || third.is_some_and(|info| info.waiters == 1)
    })
    .await;
    proxy.set(Traffic::Flows);
    tokio::time::sleep(ms(500)).await;
    servers.vacate(&[2, 3], "k");
    let guard = acquiring.await.unwrap().unwrap();
    let other = others.lock("k").wait(ms(1_000)).acquire().await;
    assert!(guard.is_valid() && other.is_err(), "{guard:?} {other:?}");
}
