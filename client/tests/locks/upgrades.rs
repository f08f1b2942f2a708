//! Upgrades that fail, are cancelled, or get a late reply. A refused upgrade leaves the read hold; one with an unknown outcome ends
//! the hold.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{Either, join, select};
use mortise_client::redis;
use mortise_client::{Client, Loss, Mode};
use mortise_harness::Server;

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{await_free, await_waiters, client, eventually, ms};

/// A client whose letters go through the proxy, and all other commands straight to the server.
async fn behind(server: &Server, proxy: &Proxy) -> Client {
    let is_first = Arc::new(AtomicBool::new(true));
    let [direct, through] =
        [server.url(), proxy.url()].map(|url| redis::Client::open(url).unwrap());
    let builder = Client::with(move || {
        let to = if is_first.swap(false, Ordering::Relaxed) {
            &direct
        } else {
            &through
        };
        let to = to.clone();
        async move { to.get_multiplexed_async_connection().await }
    });
    builder.response_timeout(ms(500)).connect().await.unwrap()
}

#[tokio::test]
async fn an_upgrade_whose_reply_is_slow_is_no_loss() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let (mine, direct) = (behind(&server, &proxy).await, client(&server).await);
    let guard = mine.lock("k").lease(ms(6_000)).read().await.unwrap();
    let other = direct.lock("k").lease(ms(60_000)).read().await.unwrap();
    let scene = async {
        await_waiters(&direct, "k", 1).await;
        // One renewal while the upgrade waits, and one while its letter is delayed.
        let first = guard.deadline();
        let renewed = || async { guard.deadline() > first };
        eventually("it is renewed while it waits", renewed).await;
        proxy.set(Traffic::Stalls);
        other.release().await.unwrap();
        tokio::time::sleep(ms(3_000)).await;
        proxy.set(Traffic::Flows);
    };
    let (upgraded, ()) = join(guard.upgrade(), scene).await;
    upgraded.unwrap();
    assert!(guard.is_valid() && guard.mode() == Mode::Write, "{guard:?}");
}

#[tokio::test]
async fn an_upgrade_cancelled_after_its_grant_frees_the_lock() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let (mine, direct) = (behind(&server, &proxy).await, client(&server).await);
    let guard = mine.lock("k").lease(ms(3_000)).read().await.unwrap();
    let other = direct.lock("k").lease(ms(60_000)).read().await.unwrap();
    {
        let upgrade = pin!(guard.upgrade());
        let scene = pin!(async {
            await_waiters(&direct, "k", 1).await;
            tokio::time::sleep(ms(1_300)).await;
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
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let (mine, direct) = (behind(&server, &proxy).await, client(&server).await);
    let guard = mine.lock("k").lease(ms(3_000)).read().await.unwrap();
    let other = direct.lock("k").lease(ms(60_000)).read().await.unwrap();
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
    let released = guard.release().await;
    assert!(
        matches!(released, Err(mortise_client::Error::Lost(_))),
        "{released:?}"
    );
    await_free(&direct, "k").await;
}
