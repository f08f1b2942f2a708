//! Semaphores.

use mortise_client::{Error, Mode};
use mortise_harness::Server;

use crate::support::dropping::{drop_at, points};
use crate::support::quorum::Servers;
use crate::support::{await_free, await_waiters, client, ms};

#[tokio::test]
async fn permits_are_granted_up_to_the_limit_and_in_the_order_of_the_queue() {
    let server = Server::start();
    let client = client(&server).await;
    let pool = |count| client.lock("pool").permits(count, 10).lease(ms(60_000));
    let (eight, two) = (pool(8).acquire().await.unwrap(), pool(2).acquire().await);
    let (other, patient) = (pool(9), pool(1));
    let many = tokio::spawn(async move { other.acquire().await });
    await_waiters(&client, "pool", 1).await;
    let few = tokio::spawn(async move { patient.acquire().await });
    await_waiters(&client, "pool", 2).await;
    eight.release().await.unwrap();
    assert!(pool(1).try_acquire().await.unwrap().is_none(), "overtakes");
    two.unwrap().release().await.unwrap();
    let (nine, one) = (many.await.unwrap().unwrap(), few.await.unwrap().unwrap());
    assert!(nine.is_valid() && one.is_valid());
    let busy = pool(1).wait(ms(20)).acquire().await.unwrap_err();
    assert!(busy.is_busy(), "{busy:?}");
}

#[tokio::test]
async fn permits_that_were_taken_over_survive_an_upgrade_and_a_downgrade() {
    let server = Server::start();
    let client = client(&server).await;
    let pool = |count| client.lock("pool").permits(count, 4).lease(ms(60_000));
    let giver = pool(3).acquire().await.unwrap();
    let token = giver.pass_to("job", ms(60_000)).await.unwrap();
    let lock = client.lock("pool").lease(ms(60_000));
    let guard = lock.clone().take_over("job", token).await.unwrap();
    guard.upgrade().await.unwrap();
    guard.downgrade().await.unwrap();
    let two = pool(2).try_acquire().await.unwrap();
    assert!(two.is_none(), "three of four are out");
    assert!(pool(1).try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_writer_has_the_pool_alone_and_its_downgrade_keeps_the_permits_it_had() {
    let server = Server::start();
    let client = client(&server).await;
    let pool = |count| client.lock("pool").permits(count, 10);
    let guard = pool(3).acquire().await.unwrap();
    guard.upgrade().await.unwrap();
    assert!(pool(1).try_acquire().await.unwrap().is_none());
    guard.downgrade().await.unwrap();
    assert_eq!(guard.mode(), Mode::Read);
    assert!(pool(8).try_acquire().await.unwrap().is_none());
    assert!(pool(7).try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_dropped_acquisition_of_permits_leaves_none_taken() {
    let server = Server::start();
    let client = client(&server).await;
    let pool = |count| client.lock("pool").permits(count, 3);
    for point in points() {
        drop_at(pool(2).acquire(), point).await;
        await_free(&client, "pool").await;
    }
}

#[tokio::test]
async fn impossible_permits_and_permits_over_a_quorum_are_refused() {
    let server = Server::start();
    let client = client(&server).await;
    for (permits, limit) in [(0, 10), (11, 10), (1, 0), (1, u32::MAX)] {
        let refused = client.lock("pool").permits(permits, limit).acquire().await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let refused = quorum
        .lock("pool")
        .permits(1, 2)
        .acquire()
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    assert!(refused.to_string().contains("majorities"), "{refused}");
}
