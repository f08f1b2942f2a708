//! Upgrades that fail, are cancelled, or get a late reply. A refused upgrade leaves the read hold; one with an unknown outcome ends
//! the hold.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use mortise_client::{Client, Guard, Loss, Mode};
use mortise_harness::Server;

use crate::support::dropping::poll_once;
use crate::support::proxy::{Proxy, Traffic};
use crate::support::{
    assert_lost, await_free, await_waiters, client_by_way_of, eventually, ms, start,
};

/// A reader whose letters go through a proxy, and all its other commands straight to the server; and another reader.
async fn scene(lease: Duration) -> (Server, Proxy, Client, Guard, Guard) {
    let (server, direct) = start().await;
    let proxy = Proxy::of(&server).await;
    let mine = client_by_way_of(&server.url(), &proxy.url()).await;
    let guard = mine.lock("k").lease(lease).read().await.unwrap();
    let other = direct.lock("k").lease(ms(60_000)).read().await.unwrap();
    (server, proxy, direct, guard, other)
}

async fn await_renewal(guard: &Guard) {
    let before = guard.deadline();
    eventually("it is renewed", async || guard.deadline() > before).await;
}

#[tokio::test]
async fn an_upgrade_that_is_granted_and_looked_at_after_the_deadline_is_a_loss() {
    let (_server, client) = start().await;
    let lock = client.lock("k").lease(ms(1_500)).auto_renew(false);
    let guard = lock.read().await.unwrap();
    let other = client.lock("k").read().await.unwrap();
    let mut upgrading = Box::pin(guard.upgrade());
    // It is queued, and learns that.
    for _ in 0..100 {
        assert!(poll_once(&mut upgrading).await.is_pending());
        tokio::time::sleep(ms(1)).await;
    }
    await_waiters(&client, "k", 1).await;
    other.release().await.unwrap();
    guard.lost().await;
    assert_lost(upgrading.await, Loss::Expired);
}

#[tokio::test]
async fn an_upgrade_whose_reply_is_slow_is_no_loss() {
    let (_server, proxy, direct, guard, other) = scene(ms(6_000)).await;
    let scene = async {
        await_waiters(&direct, "k", 1).await;
        await_renewal(&guard).await;
        proxy.set(Traffic::Stalls);
        other.release().await.unwrap();
        // While its letter is delayed.
        await_renewal(&guard).await;
        proxy.set(Traffic::Flows);
    };
    let (upgraded, ()) = join(guard.upgrade(), scene).await;
    upgraded.unwrap();
    assert!(guard.is_valid() && guard.mode() == Mode::Write, "{guard:?}");
}

#[tokio::test]
async fn an_upgrade_cancelled_after_its_grant_frees_the_lock() {
    let (_server, proxy, direct, guard, other) = scene(ms(3_000)).await;
    {
        let upgrade = pin!(guard.upgrade());
        let scene = pin!(async {
            await_waiters(&direct, "k", 1).await;
            await_renewal(&guard).await;
            proxy.set(Traffic::Stalls);
            other.release().await.unwrap();
        });
        assert!(matches!(select(upgrade, scene).await, Either::Right(_)));
    }
    proxy.set(Traffic::Flows);
    assert_eq!(guard.loss(), Some(Loss::Unknown));
    let next = direct.lock("k").wait(ms(10_000)).acquire().await.unwrap();
    assert!(next.is_valid());
}

#[tokio::test]
async fn an_upgrade_cancelled_after_its_grant_was_lost_with_the_connection_leaves_nothing() {
    let (_server, proxy, direct, guard, other) = scene(ms(3_000)).await;
    {
        let upgrade = pin!(guard.upgrade());
        let scene = pin!(async {
            await_waiters(&direct, "k", 1).await;
            proxy.set(Traffic::Stalls);
            other.release().await.unwrap();
            await_waiters(&direct, "k", 0).await;
        });
        assert!(matches!(select(upgrade, scene).await, Either::Right(_)));
    }
    // The client gives the request up within this time.
    tokio::time::sleep(ms(500)).await;
    proxy.set(Traffic::Cut);
    eventually("a reader is granted", || async {
        direct.lock("k").try_read().await.unwrap().is_some()
    })
    .await;
    assert_eq!(guard.loss(), Some(Loss::Unknown));
    assert_lost(guard.release().await, None);
    await_free(&direct, "k").await;
}

#[tokio::test]
async fn a_reader_that_waits_to_write_can_be_renewed() {
    let (_server, client) = start().await;
    let lock = client.lock("k").lease(ms(60_000)).auto_renew(false);
    let guard = lock.read().await.unwrap();
    let _other = client.lock("k").read().await.unwrap();
    let renewing = async {
        await_waiters(&client, "k", 1).await;
        let renewed = tokio::time::timeout(ms(10_000), guard.renew()).await;
        renewed.expect("it waits for the upgrade").unwrap();
    };
    match select(pin!(guard.upgrade()), pin!(renewing)).await {
        Either::Left((upgraded, _)) => panic!("{upgraded:?}"),
        Either::Right(((), _)) => assert_eq!(guard.mode(), Mode::Read),
    }
}
