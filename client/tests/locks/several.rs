//! Several locks at once, all or none.

use mortise_client::{Client, Error, Loss};
use mortise_harness::{Server, cmd};

use crate::support::dropping::{drop_at, points};
use crate::support::{assert_lost, await_free, await_waiters, client, eventually, ms, start};

const KEYS: [&str; 3] = ["a", "b", "c"];

async fn all_free(client: &Client) {
    for key in KEYS {
        await_free(client, key).await;
    }
}

#[tokio::test]
async fn several_locks_are_acquired_by_one_token_and_released_together() {
    let (_server, client) = start().await;
    let all = client.locks(KEYS).acquire().await.unwrap();
    for key in KEYS {
        let info = client.info(key).await.unwrap().unwrap();
        assert_eq!(info.holds[0].token, all.token());
        assert!(client.lock(key).try_acquire().await.unwrap().is_none());
    }
    assert_eq!(all.check().unwrap(), all.token());
    all.release().await.unwrap();
    for key in KEYS {
        assert!(client.info(key).await.unwrap().is_none(), "{key}");
    }
    let tried = client.locks(KEYS).try_acquire().await.unwrap();
    assert_eq!(tried.expect("free").key(), b"a");
}

#[tokio::test]
async fn a_waiter_for_several_locks_holds_none_and_is_granted_all_when_the_last_is_free() {
    let server = Server::start();
    let (client, other) = (client(&server).await, client(&server).await);
    let taken = other.lock("b").lease(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(client.locks(["c", "b", "a"]).acquire());
    await_waiters(&other, "b", 1).await;
    let info = other.info("a").await.unwrap().unwrap();
    assert_eq!((info.holders, info.waiters), (0, 1));
    let busy = client.locks(KEYS).wait(ms(20)).acquire().await;
    assert!(busy.unwrap_err().is_busy());
    let token = taken.token();
    taken.release().await.unwrap();
    let all = waiting.await.unwrap().unwrap();
    assert!(all.token() > token);
    assert_eq!(all.key(), b"c");
}

#[tokio::test]
async fn a_dropped_acquisition_of_several_locks_leaves_nothing_at_any_key() {
    let (_server, client) = start().await;
    let lock = client.locks(KEYS).lease(ms(60_000));
    for point in points() {
        drop_at(lock.clone().acquire(), point).await;
        all_free(&client).await;
    }
    // While it waits in the queues, and during the grant.
    for point in points() {
        let taken = client.lock("c").acquire().await.unwrap();
        let mut acquiring = Box::pin(lock.clone().acquire());
        drop_at(&mut acquiring, point).await;
        drop(taken);
        drop_at(acquiring, point).await;
        all_free(&client).await;
    }
}

#[tokio::test]
async fn each_of_several_locks_is_renewed_and_the_loss_of_one_is_reported() {
    let (server, client) = start().await;
    let lock = client.locks(KEYS).lease(ms(1_500));
    let all = lock.clone().acquire().await.unwrap();
    let first = all.deadline();
    eventually("each is renewed", || async { all.deadline() > first }).await;
    cmd!(server.connect(), "DEL", "b");
    assert_eq!(all.lost().await, Loss::Denied);
    assert_lost(all.check(), Loss::Denied);
    assert_lost(all.release().await, None);
    all_free(&client).await;
}

#[tokio::test]
async fn closing_the_client_ends_a_wait_for_several_locks_at_every_key() {
    let server = Server::start();
    let (client, other) = (client(&server).await, client(&server).await);
    let taken = other.lock("b").lease(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(client.locks(KEYS).acquire());
    await_waiters(&other, "b", 1).await;
    client.close(ms(20_000)).await;
    let closed = waiting.await.unwrap();
    assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    taken.release().await.unwrap();
    all_free(&other).await;
}
