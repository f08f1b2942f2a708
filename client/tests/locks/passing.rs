//! A lock that its holder passes on to another name, and that another client takes over.

use std::time::Instant;

use mortise_client::{Client, Error, Guard, Loss, Mode, Token};
use mortise_harness::{Server, cmd};

use crate::support::dropping::{at_every_point, drop_at, poll_once};
use crate::support::proxy::{Proxy, Traffic};
use crate::support::quorum::quorum_of;
use crate::support::{
    assert_holds, assert_invalid, assert_lost, await_free, client, client_within, eventually, ms,
    start,
};

async fn take(client: &Client) -> Guard {
    let lock = client.lock("k").lease(ms(60_000));
    lock.clone().acquire().await.unwrap()
}

/// Acquires a lock and passes it on to `heir`.
async fn pass(client: &Client, heir: &str) -> Token {
    let guard = take(client).await;
    guard.pass_to(heir, ms(60_000)).await.unwrap()
}

#[tokio::test]
async fn passing_a_lock_on_ends_the_hold_of_the_giver_and_only_one_of_two_runners_takes_it_over() {
    let server = Server::start();
    let (giver, runner) = (client(&server).await, client(&server).await);
    let guard = take(&giver).await;
    let lost = guard.lost();
    let token = guard.pass_to("job:7", ms(60_000)).await.unwrap();
    assert!(token > guard.token());
    assert_eq!(lost.await, Loss::Passed);
    assert_lost(guard.check(), Loss::Passed);
    let released = guard.release().await;
    assert_lost(released, Loss::Passed);
    let lock = runner.lock("k").lease(ms(60_000));
    let other = lock.clone();
    let (one, two) = tokio::join!(
        lock.take_over("job:7", token),
        other.take_over("job:7", token)
    );
    let (guard, refused) = match (one, two) {
        (Ok(guard), Err(refused)) | (Err(refused), Ok(guard)) => (guard, refused),
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused, Error::Lost(Loss::Denied)), "{refused:?}");
    assert!(guard.token() > token && guard.mode() == Mode::Write);
    assert_holds(guard, &server, "k").await;
}

#[tokio::test]
async fn a_guard_is_invalid_from_the_moment_that_its_pass_is_sent() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let client = client_within(proxy.url(), ms(10_000)).await;
    let guard = take(&client).await;
    proxy.set(Traffic::Stalls);
    let mut passing = Box::pin(guard.pass_to("heir", ms(60_000)));
    assert!(poll_once(&mut passing).await.is_pending());
    assert!(!guard.is_valid());
    proxy.set(Traffic::Flows);
    passing.await.unwrap();
}

#[tokio::test]
async fn a_refused_pass_leaves_the_lock_held_and_renewed() {
    let (_server, client) = start().await;
    let guard = client.lock("k").lease(ms(3_000)).acquire().await.unwrap();
    let refused = guard.pass_to(guard.owner(), ms(60_000)).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert!(guard.is_valid());
    let deadline = guard.deadline();
    eventually("it is renewed", || async { guard.deadline() > deadline }).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_is_renewed_after_a_pass_that_was_refused_late() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let client = client_within(proxy.url(), ms(20_000)).await;
    let lock = client.lock("k").lease(ms(6_000));
    let guard = lock.acquire().await.unwrap();
    let deadline = guard.deadline();
    proxy.set(Traffic::Stalls);
    let mut passing = Box::pin(guard.pass_to(guard.owner(), ms(60_000)));
    assert!(poll_once(&mut passing).await.is_pending());
    // Meanwhile a renewal would have been due.
    tokio::time::sleep(ms(2_500)).await;
    proxy.set(Traffic::Flows);
    passing.await.unwrap_err();
    eventually("it is renewed", async || guard.deadline() > deadline).await;
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_pass_dropped_at_any_point_leaves_no_unknown_hold() {
    let (server, client) = start().await;
    let mut number = 0;
    at_every_point(async |point| {
        number += 1;
        let (guard, heir) = (take(&client).await, format!("heir:{number}"));
        let is_done = drop_at(guard.pass_to(&heir, ms(60_000)), point).await;
        match is_done {
            true => drop(cmd!(server.connect(), "LOCK.LEAVE", "k", &heir)),
            false => drop(guard),
        }
        await_free(&client, "k").await;
        is_done
    })
    .await;
}

#[tokio::test]
async fn a_takeover_dropped_at_any_point_leaves_the_lock_to_the_named_heir_or_free() {
    let (_server, client) = start().await;
    let mut number = 0;
    at_every_point(async |point| {
        number += 1;
        let heir = format!("heir:{number}");
        let token = pass(&client, &heir).await;
        let lock = client.lock("k");
        let is_done = drop_at(lock.clone().take_over(&heir, token), point).await;
        drop(lock.clone().take_over(&heir, token).await);
        await_free(&client, "k").await;
        is_done
    })
    .await;
}

#[tokio::test]
async fn a_lock_over_a_quorum_cannot_be_passed_on() {
    let (_servers, quorum) = quorum_of(3).await;
    let guard = quorum.lock("k").acquire().await.unwrap();
    assert_invalid(guard.pass_to("heir", ms(60_000)).await);
    assert_invalid(quorum.lock("k").take_over("heir", guard.token()).await);
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_revoked_hold_ends_with_its_lease_and_keeps_others_out_until_then() {
    let server = Server::start();
    let (holder, operator) = (client(&server).await, client(&server).await);
    let guard = holder.lock("k").lease(ms(3_000)).acquire().await.unwrap();
    let asked = Instant::now();
    let left = operator.revoke("k", guard.owner()).await.unwrap().unwrap();
    assert!(left <= ms(3_000), "{left:?}");
    assert!(operator.lock("k").try_acquire().await.unwrap().is_none());
    assert_eq!(guard.lost().await, Loss::Denied);
    let next = operator.lock("k").acquire().await.unwrap();
    assert!(asked.elapsed() >= left && next.token() > guard.token());
    let nobody = operator.revoke("k", "nobody").await.unwrap();
    assert_eq!(nobody, None);
}

#[tokio::test]
async fn a_takeover_keeps_the_mode_of_the_hold() {
    let (_server, client) = start().await;
    let lock = client.lock("k");
    let (guard, other) = (
        lock.clone().read().await.unwrap(),
        lock.clone().read().await.unwrap(),
    );
    let token = guard.pass_to("heir", ms(60_000)).await.unwrap();
    let reader = lock.clone().take_over("heir", token).await.unwrap();
    assert_eq!(reader.mode(), Mode::Read);
    assert_lost(lock.take_over("heir", token).await, Loss::Denied);
    other.release().await.unwrap();
    reader.release().await.unwrap();
    await_free(&client, "k").await;
}
