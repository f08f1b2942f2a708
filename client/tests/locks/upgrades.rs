//! Upgrades that fail, are cancelled, or get a late reply. A refused upgrade leaves the read hold; one with an unknown outcome ends
//! the hold.

use std::pin::pin;

use futures_util::FutureExt;
use futures_util::future::{Either, join, select};
use mortise_client::server::redis;
use mortise_client::{Client, IntoServer, Loss, Mode, Owner};
use mortise_harness::{Server, cmd};

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{await_free, await_waiters, client, eventually, ms};

/// A client whose waits go through the proxy, and all other commands straight to the server.
async fn behind(server: &Server, proxy: &Proxy) -> Client {
    let shared = redis::Client::open(server.url()).unwrap();
    let shared = shared.get_multiplexed_async_connection().await.unwrap();
    let over = proxy.url().into_server().unwrap().over(shared);
    let builder = Client::builder(over).unwrap();
    builder.response_timeout(ms(500)).connect().await.unwrap()
}

#[tokio::test]
async fn an_upgrade_whose_reply_is_slow_is_no_loss() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let (mine, direct) = (behind(&server, &proxy).await, client(&server).await);
    let mut guard = mine.lock("k").lease(ms(6_000)).read().await.unwrap();
    let held = guard.held();
    let other = direct.lock("k").lease(ms(60_000)).read().await.unwrap();
    let scene = async {
        await_waiters(&direct, "k", 1).await;
        // One renewal while the upgrade waits, and one while its letter is delayed.
        let first = held.deadline();
        let renewed = || async { held.deadline() > first };
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
async fn a_renewal_by_the_token_that_an_upgrade_replaced_is_repeated_and_no_loss() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let shared = redis::Client::open(server.url()).unwrap();
    let mut shared = shared.get_multiplexed_async_connection().await.unwrap();
    let id: i64 = (redis::cmd("CLIENT").arg("ID"))
        .query_async(&mut shared)
        .await
        .unwrap();
    let over = proxy.url().into_server().unwrap().over(shared);
    let builder = Client::builder(over).unwrap();
    let mine = builder.response_timeout(ms(500)).connect().await.unwrap();
    let direct = client(&server).await;
    let lock = mine.lock("k").owner(&Owner::new()).reentrant();
    let lock = lock.lease(ms(60_000)).auto_renew(false);
    let (mut outer, inner) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let token = inner.token();
    let other = direct.lock("k").lease(ms(60_000)).read().await.unwrap();
    // After this wait, the connection for letters stays open.
    let busy = mine.lock("k").wait(ms(50)).acquire().await;
    assert!(busy.unwrap_err().is_busy());

    // The connection closes before the server has run the renewal. The client sends it again at the next poll.
    let mut conn = server.connect();
    cmd!(conn, "CLIENT", "PAUSE", 60_000, "WRITE");
    let mut renewal = pin!(inner.renew());
    assert!((&mut renewal).now_or_never().is_none());
    // Letters are late, but not the replies on new connections.
    proxy.set(Traffic::StallsOld);
    cmd!(conn, "CLIENT", "KILL", "ID", id);
    cmd!(conn, "CLIENT", "UNPAUSE");
    eventually("the client has connected again", || async {
        mine.info("k").await.is_ok()
    })
    .await;
    let upgrade = tokio::spawn(async move { outer.upgrade().await.map(|()| outer) });
    await_waiters(&direct, "k", 1).await;
    other.release().await.unwrap();
    await_waiters(&direct, "k", 0).await;
    // The repeated renewal names the new token.
    renewal.await.unwrap();
    assert_eq!(inner.loss(), None);
    let outer = upgrade.await.unwrap().unwrap();
    assert!(outer.is_valid() && outer.mode() == Mode::Write && outer.token() > token);
    inner.renew().await.unwrap();
}

#[tokio::test]
async fn an_upgrade_cancelled_after_its_grant_frees_the_lock() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let (mine, direct) = (behind(&server, &proxy).await, client(&server).await);
    let mut guard = mine.lock("k").lease(ms(3_000)).read().await.unwrap();
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
    let mut guard = mine.lock("k").lease(ms(3_000)).read().await.unwrap();
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
