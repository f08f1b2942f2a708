//! Releases and changes of mode that the server refuses, that get stuck, or that meet a hold that is gone.

use mortise_client::{ChangeFailed, Client, Error, Guard, Lock, Loss, Mode, Owner};
use mortise_harness::{Server, cmd};

use crate::support::proxy::{Proxy, Traffic};
use crate::support::quorum::Servers;
use crate::support::{self, await_free, await_waiters, client, client_of, ms};

/// Makes the server refuse RELEASE and LEAVE, or accept them again.
fn refuse_releases(server: &Server, refuse: bool) {
    let sign = if refuse { "-" } else { "+" };
    for command in ["lock.release", "lock.leave"] {
        let rule = format!("{sign}{command}");
        cmd!(server.connect(), "ACL", "SETUSER", "default", rule);
    }
}

#[tokio::test]
async fn a_refused_downgrade_is_an_error_and_leaves_the_write_hold() {
    let server = Server::start();
    let client = client(&server).await;
    let mut guard = client.lock("k").acquire().await.unwrap();
    refuse_releases(&server, true);
    let error = guard.downgrade().await.unwrap_err();
    assert!(matches!(error.error, Error::Refused { .. }), "{error:?}");
    assert_eq!((error.left, guard.mode()), (Some(Mode::Write), Mode::Write));
    assert!(client.lock("k").try_read().await.unwrap().is_none());
    refuse_releases(&server, false);
    guard.downgrade().await.unwrap();
    let other = client.lock("k").read().await.unwrap();
    assert!(guard.is_valid() && other.is_valid() && guard.mode() == Mode::Read);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_refused_release_is_repeated_until_the_server_accepts_it() {
    let server = Server::start();
    let client = client(&server).await;
    let owner = Owner::new();
    let lock = client.lock("k").owner(&owner).lease(ms(60_000));
    let guard = lock.acquire().await.unwrap();
    let token = guard.token();
    refuse_releases(&server, true);
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    let busy = lock.clone().wait(ms(20)).acquire().await.unwrap_err();
    assert!(busy.is_busy(), "{busy:?}");
    assert!(lock.try_acquire().await.unwrap().is_none());
    refuse_releases(&server, false);
    assert!(lock.acquire().await.unwrap().token() > token);
}

#[tokio::test]
async fn an_owner_whose_release_is_stuck_acquires_again_over_another_connection() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let slow = client_of(&proxy.url()).await;
    let lock = slow.lock("k").owner(&Owner::new()).lease(ms(60_000));
    let guard = lock.acquire().await.unwrap();
    let token = guard.token();
    proxy.set(Traffic::StallsOld);
    let error = guard.release().await.unwrap_err();
    assert!(matches!(error, Error::Connection { .. }), "{error:?}");
    let again = lock.acquire().await.unwrap();
    assert!(again.token() > token);
    // The stuck release arrives, and changes nothing.
    proxy.set(Traffic::Flows);
    support::assert_holds(again, &server, "k").await;
}

#[tokio::test]
async fn a_denied_renewal_is_a_loss_for_all_guards_of_the_hold() {
    let server = Server::start();
    let client = client(&server).await;
    let owner = Owner::new();
    let lock = client.lock("k").owner(&owner).reentrant().lease(ms(60_000));
    let (outer, inner) = (lock.acquire().await.unwrap(), lock.acquire().await.unwrap());
    cmd!(server.connect(), "DEL", "k");
    assert!(matches!(inner.renew().await, Err(Error::NotHeld)));
    assert_eq!(outer.loss(), Some(Loss::Denied));
    let released = inner.release().await;
    assert!(matches!(released, Err(Error::Lost(_))), "{released:?}");
    let released = outer.release().await;
    assert!(matches!(released, Err(Error::Lost(_))), "{released:?}");
}

#[tokio::test]
async fn changing_the_mode_of_a_hold_that_is_gone_is_a_loss() {
    let server = Server::start();
    let client = client(&server).await;
    for mode in [Mode::Read, Mode::Write] {
        let lock = client.lock("k").lease(ms(60_000));
        let mut guard = match mode {
            Mode::Read => lock.read().await.unwrap(),
            Mode::Write => lock.write().await.unwrap(),
        };
        cmd!(server.connect(), "DEL", "k");
        let changed = match mode {
            Mode::Read => guard.upgrade().await,
            Mode::Write => guard.downgrade().await,
        };
        let error = changed.unwrap_err();
        let is_loss = matches!(error.error, Error::Lost(_) | Error::NotHeld);
        assert!(is_loss && error.left.is_none(), "{error:?}");
        assert!(!guard.is_valid(), "{mode}");
        drop(guard);
        await_free(&client, "k").await;
    }
}

/// Deletes the key on these servers while a reader waits without limit for its upgrade. Returns the outcome, before the first
/// renewal in the background.
async fn upgrade_while_deleted(
    lock: Lock,
    client: &Client,
    servers: &[Server],
) -> (Result<(), ChangeFailed>, Guard) {
    let mut guard = lock.read().await.unwrap();
    let upgrade = tokio::spawn(async move { (guard.upgrade().await, guard) });
    await_waiters(client, "k", 1).await;
    for server in servers {
        cmd!(server.connect(), "DEL", "k");
    }
    let limit = std::time::Duration::from_secs(15);
    let ended = tokio::time::timeout(limit, upgrade).await;
    ended.expect("the upgrade notices the loss").unwrap()
}

fn assert_lost((upgraded, guard): (Result<(), ChangeFailed>, Guard)) {
    let error = upgraded.unwrap_err();
    let is_loss = matches!(error.error, Error::Lost(_) | Error::NotHeld);
    assert!(is_loss && error.left.is_none(), "{error:?}");
    assert_eq!(guard.loss(), Some(Loss::Denied));
}

#[tokio::test]
async fn an_upgrade_whose_read_hold_goes_while_it_waits_ends_with_the_loss() {
    let server = Server::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(60_000));
    let _other = lock.read().await.unwrap();
    assert_lost(upgrade_while_deleted(lock, &client, &[server]).await);
}

#[tokio::test]
async fn re_entry_to_a_hold_that_is_gone_is_a_loss_and_leaves_nothing() {
    let server = Server::start();
    let one = client(&server).await;
    let lock = one.lock("k").owner(&Owner::new()).reentrant();
    assert_reentry_is_a_loss(lock.lease(ms(60_000)), &[server], &[one]).await;
    let servers = Servers::start(3);
    let (quorum, clients) = (servers.quorum().await, servers.clients().await);
    let lock = quorum.lock("k").owner(&Owner::new()).reentrant();
    assert_reentry_is_a_loss(lock.lease(ms(60_000)), &servers.0, &clients).await;
}

async fn assert_reentry_is_a_loss(lock: Lock, servers: &[Server], clients: &[Client]) {
    for waits in [false, true] {
        let outer = lock.acquire().await.unwrap();
        let inner = lock.acquire().await.unwrap();
        for server in servers {
            cmd!(server.connect(), "DEL", "k");
        }
        let error = match waits {
            true => lock.acquire().await.unwrap_err(),
            false => lock.try_acquire().await.unwrap_err(),
        };
        let is_loss = matches!(error, Error::Lost(Loss::Denied) | Error::NotHeld);
        assert!(is_loss, "{error:?}");
        let losses = (outer.loss(), inner.loss());
        assert_eq!(losses, (Some(Loss::Denied), Some(Loss::Denied)));
        for client in clients {
            await_free(client, "k").await;
        }
    }
}
