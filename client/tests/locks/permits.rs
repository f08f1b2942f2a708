//! Semaphores.

use mortise_client::{Client, Error, Guard, Mode};

use crate::support::quorum::Servers;
use crate::support::{await_waiters, ms, start};

#[tokio::test]
async fn permits_are_granted_up_to_the_limit_and_in_the_order_of_the_queue() {
    let (_server, client) = start().await;
    let pool = |count| client.lock("pool").permits(count, 10).lease(ms(60_000));
    let (eight, two) = (pool(8).acquire().await.unwrap(), pool(2).acquire().await);
    let many = tokio::spawn(pool(9).acquire());
    await_waiters(&client, "pool", 1).await;
    let few = tokio::spawn(pool(1).acquire());
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
async fn permits_that_were_taken_over_or_not_survive_an_upgrade_and_a_downgrade() {
    let (_server, client) = start().await;
    let pool = |count| client.lock("pool").permits(count, 4).lease(ms(60_000));
    let own = pool(3).acquire().await.unwrap();
    upgrade_and_downgrade(&client, &own).await;
    let token = own.pass_to("job", ms(60_000)).await.unwrap();
    let lock = client.lock("pool").lease(ms(60_000));
    let taken = lock.take_over("job", token).await.unwrap();
    upgrade_and_downgrade(&client, &taken).await;
}

/// The guard has three permits of four before, and after it had the pool alone.
async fn upgrade_and_downgrade(client: &Client, guard: &Guard) {
    let pool = |count| client.lock("pool").permits(count, 4);
    guard.upgrade().await.unwrap();
    assert!(pool(1).try_acquire().await.unwrap().is_none());
    guard.downgrade().await.unwrap();
    assert_eq!(guard.mode(), Mode::Read);
    assert!(pool(2).try_acquire().await.unwrap().is_none());
    let last = pool(1).try_acquire().await.unwrap().expect("one is left");
    last.release().await.unwrap();
}

#[tokio::test]
async fn permits_over_a_quorum_are_refused() {
    let servers = Servers::start(3);
    let pool = servers.quorum().await.lock("pool").permits(1, 2);
    let refused = pool.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    assert!(refused.to_string().contains("majorities"), "{refused}");
}
