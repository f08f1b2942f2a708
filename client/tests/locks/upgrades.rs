//! Upgrades that fail, are cancelled, or are answered late: what is refused leaves the reader the reader that it was, and what
//! nobody knows the outcome of ends the hold.

use std::pin::pin;

use futures_util::FutureExt;
use futures_util::future::{Either, join, select};
use mortise_client::{Client, Guard, Loss, Mode, Owner, Quorum, Released, redis};
use mortise_harness::{Server, cmd};

use crate::support::proxy::{Proxy, Traffic};
use crate::support::quorum::Servers;
use crate::support::{await_free, await_waiters, client, eventually, ms};

/// A client whose requests that wait go through the proxy, and everything else straight to the server.
async fn behind(server: &Server, proxy: &Proxy) -> Client {
    let shared = redis::Client::open(server.url()).unwrap();
    let shared = shared.get_multiplexed_async_connection().await.unwrap();
    let builder = Client::builder(proxy.url()).unwrap().connection(shared);
    builder.response_timeout(ms(500)).connect().await.unwrap()
}

#[tokio::test]
async fn an_upgrade_whose_answer_is_slow_is_no_loss() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let (mine, direct) = (behind(&server, &proxy).await, client(&server).await);
    let mut guard = mine.lock("k").lease(ms(3_000)).read().await.unwrap();
    let other = direct.lock("k").lease(ms(60_000)).read().await.unwrap();
    let scene = async {
        await_waiters(&direct, "k", 1).await;
        // A renewal while it waits, and another while the answer is on its way.
        tokio::time::sleep(ms(1_500)).await;
        proxy.set(Traffic::Stalls);
        other.release().await.unwrap();
        tokio::time::sleep(ms(1_500)).await;
        proxy.set(Traffic::Flows);
    };
    let (upgraded, ()) = join(guard.upgrade(), scene).await;
    upgraded.unwrap();
    assert!(guard.is_valid() && guard.mode() == Mode::Write, "{guard:?}");
}

#[tokio::test]
async fn a_renewal_by_the_token_that_an_upgrade_has_replaced_is_denied_and_no_loss() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let shared = redis::Client::open(server.url()).unwrap();
    let mut shared = shared.get_multiplexed_async_connection().await.unwrap();
    let id: i64 = (redis::cmd("CLIENT").arg("ID"))
        .query_async(&mut shared)
        .await
        .unwrap();
    let builder = Client::builder(proxy.url()).unwrap().connection(shared);
    let mine = builder.response_timeout(ms(500)).connect().await.unwrap();
    let direct = client(&server).await;
    let lock = mine.lock("k").owner(&Owner::new()).reentrant();
    let lock = lock.lease(ms(60_000)).auto_renew(false);
    let (mut outer, inner) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let token = inner.token();
    let other = direct.lock("k").lease(ms(60_000)).read().await.unwrap();
    // A wait leaves the connection behind that letters come by.
    let busy = mine.lock("k").wait(ms(50)).acquire().await;
    assert!(busy.unwrap_err().is_busy());

    // The renewal meets a connection that is closed before the server has run it: it is sent again when it is polled again.
    let mut conn = server.connect();
    cmd!(conn, "CLIENT", "PAUSE", 60_000, "WRITE");
    let mut renewal = pin!(inner.renew());
    assert!((&mut renewal).now_or_never().is_none());
    // Letters are late, and what is connected anew is not.
    proxy.set(Traffic::StallsOld);
    cmd!(conn, "CLIENT", "KILL", "ID", id);
    cmd!(conn, "CLIENT", "UNPAUSE");
    eventually("it has connected anew", || async {
        mine.info("k").await.is_ok()
    })
    .await;
    let upgrade = tokio::spawn(async move { outer.upgrade().await.map(|()| outer) });
    await_waiters(&direct, "k", 1).await;
    other.release().await.unwrap();
    await_waiters(&direct, "k", 0).await;
    let denied = renewal.await;
    assert!(denied.is_err(), "not by the token that it has now");
    assert_eq!(inner.loss(), None);
    let outer = upgrade.await.unwrap().unwrap();
    assert!(outer.is_valid() && outer.mode() == Mode::Write && outer.token() > token);
    inner.renew().await.unwrap();
}

#[tokio::test]
async fn an_upgrade_cancelled_after_its_grant_ends_the_hold_and_lets_others_in() {
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

/// Three servers, and a reader on all of them whose upgrade was granted by one, denied by two, and undone.
async fn after_a_failed_upgrade() -> (Servers, Quorum, Guard) {
    let servers = Servers::start(3);
    let quorum = servers.quorum_with(ms(1_000)).await;
    let lock = quorum.lock("k").lease(ms(6_000));
    let mut guard = lock.read().await.unwrap();
    // It was renewed since, so that it is known by which token each server knows it.
    tokio::time::sleep(ms(2_500)).await;
    for server in &servers.0[..2] {
        cmd!(server.connect(), "LOCK.RLOCK", "k", "somebody", 60_000);
    }
    let busy = guard.upgrade_within(ms(300)).await;
    assert!(
        busy.as_ref()
            .is_err_and(|it| it.error.is_busy() && it.left == Some(Mode::Read)),
        "{busy:?}"
    );
    for server in &servers.0[..2] {
        cmd!(server.connect(), "LOCK.RELEASE", "k", "somebody", "ALL");
    }
    (servers, quorum, guard)
}

#[tokio::test]
async fn a_failed_upgrade_over_a_quorum_does_not_keep_the_release_from_a_server() {
    let (servers, _quorum, guard) = after_a_failed_upgrade().await;
    guard.release().await.unwrap();
    eventually("it is free everywhere", || async {
        servers.taken("k").is_empty()
    })
    .await;
}

#[tokio::test]
async fn after_a_failed_upgrade_over_a_quorum_any_majority_keeps_the_lock() {
    let (mut servers, _quorum, guard) = after_a_failed_upgrade().await;
    servers.0[0].sigkill();
    tokio::time::sleep(ms(8_000)).await;
    assert!(guard.is_valid(), "{guard:?}");
}

#[tokio::test]
async fn a_server_that_refuses_an_upgrade_that_others_granted_is_left_and_bears_no_writer_out() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let mut guard = quorum.lock("k").lease(ms(60_000)).read().await.unwrap();
    eventually("it is held everywhere", || async {
        servers.taken("k") == [0, 1, 2]
    })
    .await;
    let rule = "-lock.acquire";
    cmd!(servers.0[2].connect(), "ACL", "SETUSER", "default", rule);
    guard.upgrade().await.unwrap();
    eventually("it is held where it writes", || async {
        servers.taken("k") == [0, 1]
    })
    .await;
    assert!(guard.is_valid() && guard.mode() == Mode::Write, "{guard:?}");
    assert_eq!(guard.release().await.unwrap(), Released::Held);
}

#[tokio::test]
async fn a_cancelled_upgrade_over_a_quorum_leaves_no_waiter() {
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let lock = quorum.lock("k").lease(ms(60_000));
    let mut guard = lock.read().await.unwrap();
    let mut other = lock.read().await.unwrap();
    let waiting = tokio::time::timeout(ms(500), guard.upgrade()).await;
    assert!(waiting.is_err(), "{waiting:?}");
    for client in &servers.clients().await {
        eventually("nobody waits", || async {
            client.info("k").await.unwrap().unwrap().waiters == 0
        })
        .await;
    }
    assert_eq!(guard.loss(), Some(Loss::Unknown));
    assert!(lock.try_read().await.unwrap().is_some());
    let mut guard = lock.read().await.unwrap();
    // Nothing is left of the upgrade that is not there any more.
    let busy = other.upgrade_within(ms(300)).await;
    assert!(
        busy.as_ref()
            .is_err_and(|it| it.error.is_busy() && it.left == Some(Mode::Read)),
        "{busy:?}"
    );
    drop(other);
    guard.upgrade().await.unwrap();
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
    // By then it has been given up.
    tokio::time::sleep(ms(500)).await;
    proxy.set(Traffic::Cut);
    eventually("readers get in", || async {
        direct.lock("k").try_read().await.unwrap().is_some()
    })
    .await;
    assert_eq!(guard.loss(), Some(Loss::Unknown));
    assert_eq!(guard.release().await.unwrap(), Released::Lost);
    await_free(&direct, "k").await;
}
