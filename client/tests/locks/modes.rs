//! Readers and writers, upgrades and downgrades, owners: deadlock and re-entry.

use mortise_client::{Error, Mode, Owner};
use mortise_harness::Server;

use crate::support::quorum::Servers;
use crate::support::{await_waiters, client, eventually, ms};

#[tokio::test]
async fn readers_share_and_writers_do_not() {
    let server = Server::start();
    let client = client(&server).await;
    let first = client.lock("k").read().await.unwrap();
    let second = client.lock("k").read().await.unwrap();
    assert_ne!(first.owner(), second.owner());
    assert!(client.lock("k").try_write().await.unwrap().is_none());
    drop((first, second));
    let writer = client.lock("k").write().await.unwrap();
    assert_eq!(writer.mode(), Mode::Write);
    writer.release().await.unwrap();
    let writer = client.lock("k").try_write().await.unwrap();
    assert_eq!(writer.expect("free").mode(), Mode::Write);
}

#[tokio::test]
async fn the_last_reader_upgrades_at_once_with_a_new_token_and_downgrades_with_the_same() {
    let server = Server::start();
    let client = client(&server).await;
    let mut guard = client.lock("k").lease(ms(3_000)).read().await.unwrap();
    let read_token = guard.token();
    guard.upgrade().await.unwrap();
    assert_eq!(guard.mode(), Mode::Write);
    let write_token = guard.token();
    assert!(write_token > read_token);
    assert!(client.lock("k").try_read().await.unwrap().is_none());
    guard.downgrade().await.unwrap();
    assert_eq!((guard.mode(), guard.token()), (Mode::Read, write_token));
    let other = client.lock("k").try_read().await.unwrap();
    assert!(other.is_some());
    // After both changes the guard can still be renewed and released.
    let changed = guard.deadline();
    let renewed = || async { guard.deadline() > changed + ms(1_500) };
    eventually("it is renewed", renewed).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_upgrade_waits_for_the_other_reader_while_its_read_hold_is_renewed() {
    let server = Server::start();
    let client = client(&server).await;
    let other = client.lock("k").read().await.unwrap();
    let mut guard = client.lock("k").lease(ms(3_000)).read().await.unwrap();
    let error = guard.upgrade_within(ms(3_500)).await.unwrap_err();
    assert!(
        error.error.is_busy() && error.left == Some(Mode::Read),
        "{error:?}"
    );
    assert!(guard.is_valid() && guard.mode() == Mode::Read);
    let upgrade = tokio::spawn(async move {
        guard.upgrade().await.unwrap();
        guard
    });
    await_waiters(&client, "k", 1).await;
    drop(other);
    let guard = upgrade.await.unwrap();
    assert!(guard.is_valid() && guard.mode() == Mode::Write);
    guard.release().await.unwrap();
    assert_eq!(client.info("k").await.unwrap(), None);
}

#[tokio::test]
async fn a_second_upgrade_is_a_deadlock_and_leaves_the_read_hold() {
    let server = Server::start();
    let client = client(&server).await;
    let mut first = client.lock("k").read().await.unwrap();
    let mut second = client.lock("k").read().await.unwrap();
    let upgrade = tokio::spawn(async move {
        first.upgrade().await.unwrap();
        first
    });
    await_waiters(&client, "k", 1).await;
    let error = second.upgrade().await.unwrap_err();
    assert!(matches!(error.error, Error::Deadlock(_)), "{error:?}");
    assert_eq!(error.left, Some(Mode::Read));
    assert!(second.is_valid());
    second.release().await.unwrap();
    assert!(upgrade.await.unwrap().is_valid());
}

#[tokio::test]
async fn the_second_of_two_owners_that_acquire_two_locks_crosswise_gets_deadlock() {
    let server = Server::start();
    let client = client(&server).await;
    let (a, b) = (Owner::new(), Owner::new());
    let _a1 = client.lock("1").owner(&a).acquire().await.unwrap();
    let _b2 = client.lock("2").owner(&b).acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = client.lock("2").owner(&a);
        async move { lock.acquire().await.map(drop) }
    });
    await_waiters(&client, "2", 1).await;
    let error = client.lock("1").owner(&b).acquire().await.unwrap_err();
    assert!(
        matches!(&error, Error::Deadlock(line) if line.contains('1')),
        "{error:?}"
    );
    waiting.abort();
}

#[tokio::test]
async fn a_second_request_of_an_owner_that_holds_or_waits_is_already_held() {
    let server = Server::start();
    let client = client(&server).await;
    let owner = Owner::new();
    let lock = client.lock("k").owner(&owner);
    let guard = lock.acquire().await.unwrap();
    assert!(matches!(lock.acquire().await, Err(Error::AlreadyHeld)));
    assert!(matches!(lock.try_read().await, Err(Error::AlreadyHeld)));
    guard.release().await.unwrap();
    let _other = client.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.map(drop) }
    });
    await_waiters(&client, "k", 1).await;
    assert!(matches!(lock.acquire().await, Err(Error::AlreadyHeld)));
    waiting.abort();
}

#[tokio::test]
async fn an_owner_can_acquire_a_lock_that_it_has_just_released() {
    let server = Server::start();
    let client = client(&server).await;
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    for lock in [client.lock("k"), quorum.lock("k").lease(ms(60_000))] {
        let lock = lock.owner(&Owner::new());
        let mut token = None;
        for _ in 0..50 {
            drop(lock.acquire().await.unwrap());
            let released = lock.acquire().await.unwrap().release();
            // Dropped before the reply.
            let _ = tokio::time::timeout(ms(0), released).await;
            let guard = lock.try_acquire().await.unwrap().expect("nobody else's");
            assert!(Some(guard.token()) > token);
            token = Some(guard.token());
            // A dropped acquisition does not block the next one, either.
            drop(guard);
            let _ = tokio::time::timeout(ms(0), lock.acquire()).await;
        }
    }
}

#[tokio::test]
async fn re_entry_keeps_the_token_and_frees_the_lock_with_the_last_guard() {
    let server = Server::start();
    let client = client(&server).await;
    let owner = Owner::named("nightly:1").unwrap();
    let lock = client.lock("k").owner(&owner).reentrant();
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    let reader = lock.read().await.unwrap();
    assert!(inner.token() == outer.token() && reader.token() == outer.token());
    let hold = &client.info("k").await.unwrap().unwrap().holds[0];
    // The client counts re-entries itself: the server has one hold.
    assert_eq!((hold.write, hold.read), (1, 0));
    outer.release().await.unwrap();
    assert!(inner.is_valid());
    inner.release().await.unwrap();
    let hold = &client.info("k").await.unwrap().unwrap().holds[0];
    assert_eq!((hold.write, hold.read), (0, 1));
    reader.release().await.unwrap();
    assert_eq!(client.info("k").await.unwrap(), None);
}

#[tokio::test]
async fn an_owner_that_takes_many_other_locks_still_knows_what_it_holds() {
    let server = Server::start();
    let client = client(&server).await;
    let owner = Owner::new();
    let lock = client.lock("held").owner(&owner);
    let _guard = lock.acquire().await.unwrap();
    for number in 0..100 {
        let other = client.lock(format!("other-{number}")).owner(&owner);
        other.acquire().await.unwrap().release().await.unwrap();
    }
    let again = lock.try_acquire().await;
    assert!(matches!(again, Err(Error::AlreadyHeld)), "{again:?}");
}
