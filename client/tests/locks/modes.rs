//! Readers and writers, upgrades and downgrades, owners: deadlock and re-entry.

use mortise_client::{Error, Mode, Owner};

use crate::support::quorum::quorum_of;
use crate::support::{await_waiters, eventually, ms, start};

#[tokio::test]
async fn readers_share_and_writers_do_not() {
    let (_server, client) = start().await;
    let first = client.lock("k").read().await.unwrap();
    let second = client.lock("k").read().await.unwrap();
    assert_ne!(first.owner(), second.owner());
    assert!(client.lock("k").try_acquire().await.unwrap().is_none());
    drop((first, second));
    let writer = client.lock("k").acquire().await.unwrap();
    assert_eq!(writer.mode(), Mode::Write);
    writer.release().await.unwrap();
    let writer = client.lock("k").try_acquire().await.unwrap();
    assert_eq!(writer.expect("free").mode(), Mode::Write);
}

#[tokio::test]
async fn the_last_reader_upgrades_at_once_with_a_new_token_and_downgrades_with_the_same() {
    let (_server, client) = start().await;
    let guard = client.lock("k").lease(ms(3_000)).read().await.unwrap();
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
    let (_server, client) = start().await;
    let other = client.lock("k").read().await.unwrap();
    let guard = client.lock("k").lease(ms(3_000)).read().await.unwrap();
    let brief = client.lock("k").wait(ms(3_500)).lease(ms(3_000));
    let brief = brief.read().await.unwrap();
    let error = brief.upgrade().await.unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error:?}");
    assert!(brief.is_valid() && brief.mode() == Mode::Read);
    brief.release().await.unwrap();
    assert!(guard.is_valid() && guard.mode() == Mode::Read);
    let upgrade = tokio::spawn(async move { guard.upgrade().await.map(|()| guard) });
    await_waiters(&client, "k", 1).await;
    drop(other);
    let guard = upgrade.await.unwrap().unwrap();
    assert!(guard.is_valid() && guard.mode() == Mode::Write);
    guard.release().await.unwrap();
    assert_eq!(client.info("k").await.unwrap(), None);
}

#[tokio::test]
async fn a_second_upgrade_is_a_deadlock_and_leaves_the_read_hold() {
    let (_server, client) = start().await;
    let first = client.lock("k").read().await.unwrap();
    let second = client.lock("k").read().await.unwrap();
    let upgrade = tokio::spawn(async move { first.upgrade().await.map(|()| first) });
    await_waiters(&client, "k", 1).await;
    let error = second.upgrade().await.unwrap_err();
    assert!(matches!(error, Error::Deadlock(_)), "{error:?}");
    assert!(second.is_valid() && second.mode() == Mode::Read);
    second.release().await.unwrap();
    assert!(upgrade.await.unwrap().unwrap().is_valid());
}

#[tokio::test]
async fn the_second_of_two_owners_that_acquire_two_locks_crosswise_gets_deadlock() {
    let (_server, client) = start().await;
    let (a, b) = (Owner::new(), Owner::new());
    let _a1 = client.lock("1").owner(&a).acquire().await.unwrap();
    let _b2 = client.lock("2").owner(&b).acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("2").owner(&a).acquire());
    await_waiters(&client, "2", 1).await;
    let error = client.lock("1").owner(&b).acquire().await.unwrap_err();
    assert!(
        matches!(&error, Error::Deadlock(line) if line.contains('1')),
        "{error:?}"
    );
    waiting.abort();
}

#[tokio::test]
async fn an_owner_can_acquire_a_lock_that_it_has_just_released() {
    let (_server, client) = start().await;
    let (_servers, quorum) = quorum_of(3).await;
    for lock in [client.lock("k"), quorum.lock("k").lease(ms(60_000))] {
        let lock = lock.owner(&Owner::new());
        let mut token = None;
        for _ in 0..50 {
            drop(lock.clone().acquire().await.unwrap());
            let released = lock.clone().acquire().await.unwrap().release();
            // Dropped before the reply.
            let _ = tokio::time::timeout(ms(0), released).await;
            let guard = lock.clone().try_acquire().await.unwrap();
            let guard = guard.expect("nobody else's");
            assert!(Some(guard.token()) > token);
            token = Some(guard.token());
            // A dropped acquisition does not block the next one, either.
            drop(guard);
            let _ = tokio::time::timeout(ms(0), lock.clone().acquire()).await;
        }
    }
}

#[tokio::test]
async fn a_hold_that_was_re_entered_ends_with_the_last_of_its_guards() {
    let (_server, client) = start().await;
    let guard = client.lock("k").acquire().await.unwrap();
    let (inner, dropped) = (guard.reenter(), guard.reenter());
    assert_eq!(
        (inner.token(), inner.owner()),
        (guard.token(), guard.owner())
    );
    drop(dropped);
    guard.release().await.unwrap();
    assert!(inner.is_valid());
    assert!(client.lock("k").try_acquire().await.unwrap().is_none());
    inner.release().await.unwrap();
    assert_eq!(client.info("k").await.unwrap(), None);
}
