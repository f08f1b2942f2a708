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
    let pool = client.semaphore("pool", 10).lease(ms(60_000));
    let (eight, two) = (pool.acquire(8).await.unwrap(), pool.acquire(2).await);
    let (other, patient) = (pool.clone(), pool.clone());
    let many = tokio::spawn(async move { other.acquire(9).await });
    await_waiters(&client, "pool", 1).await;
    let few = tokio::spawn(async move { patient.acquire(1).await });
    await_waiters(&client, "pool", 2).await;
    eight.release().await.unwrap();
    assert!(pool.try_acquire(1).await.unwrap().is_none(), "overtakes");
    two.unwrap().release().await.unwrap();
    let (nine, one) = (many.await.unwrap().unwrap(), few.await.unwrap().unwrap());
    assert!(nine.is_valid() && one.is_valid());
    let busy = pool.clone().wait(ms(20)).acquire(1).await.unwrap_err();
    assert!(busy.is_busy(), "{busy:?}");
}

#[tokio::test]
async fn permits_that_were_taken_over_survive_an_upgrade_and_a_downgrade() {
    let server = Server::start();
    let client = client(&server).await;
    let pool = client.semaphore("pool", 4).lease(ms(60_000));
    let giver = pool.acquire(3).await.unwrap();
    let token = giver.pass_to("job", ms(60_000)).await.unwrap();
    let lock = client.lock("pool").lease(ms(60_000));
    let mut guard = lock.take_over("job", token).await.unwrap();
    guard.upgrade().await.unwrap();
    guard.downgrade().await.unwrap();
    let two = pool.try_acquire(2).await.unwrap();
    assert!(two.is_none(), "three of four are out");
    assert!(pool.try_acquire(1).await.unwrap().is_some());
}

#[tokio::test]
async fn a_writer_has_the_pool_alone_and_its_downgrade_keeps_the_permits_it_had() {
    let server = Server::start();
    let client = client(&server).await;
    let pool = client.semaphore("pool", 10);
    let mut guard = pool.acquire(3).await.unwrap();
    guard.upgrade().await.unwrap();
    assert!(pool.try_acquire(1).await.unwrap().is_none());
    guard.downgrade().await.unwrap();
    assert_eq!(guard.mode(), Mode::Read);
    assert!(pool.try_acquire(8).await.unwrap().is_none());
    assert!(pool.try_acquire(7).await.unwrap().is_some());
}

#[tokio::test]
async fn a_dropped_acquisition_of_permits_leaves_none_taken() {
    let server = Server::start();
    let client = client(&server).await;
    let pool = client.semaphore("pool", 3);
    for point in points() {
        drop_at(pool.acquire(2), point).await;
        await_free(&client, "pool").await;
    }
}

#[tokio::test]
async fn impossible_permits_and_permits_over_a_quorum_are_refused() {
    let server = Server::start();
    let client = client(&server).await;
    for (permits, limit) in [(0, 10), (11, 10), (1, 0), (1, u32::MAX)] {
        let refused = client.semaphore("pool", limit).acquire(permits).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
    let servers = Servers::start(3);
    let quorum = servers.quorum().await;
    let refused = quorum.lock("pool").limit(2).acquire(1).await.unwrap_err();
    assert!(matches!(refused, Error::NotOverQuorum(_)), "{refused:?}");
    assert!(refused.to_string().contains("majority"), "{refused}");
}
