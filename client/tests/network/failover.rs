//! Who waits while another server takes over goes on waiting, and waits where the lock is.

use mortise_harness::{Server, cmd};

use crate::support::{await_waiters, client, ms};

#[tokio::test]
async fn who_waits_is_sent_away_by_a_server_that_is_no_primary_and_asks_again_until_it_is() {
    let server = Server::start();
    let client = client(&server).await;
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let lock = client.lock("k").wait(ms(60_000));
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    for _ in 0..3 {
        await_waiters(&client, "k", 1).await;
        cmd!(server.connect(), "REPLICAOF", "127.0.0.1", "1");
        // Refused meanwhile, as everything that changes something.
        tokio::time::sleep(ms(300)).await;
        cmd!(server.connect(), "REPLICAOF", "NO", "ONE");
    }
    await_waiters(&client, "k", 1).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[cfg(feature = "sentinel")]
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_after_a_failover_waits_on_the_new_primary() {
    use mortise_client::Client;
    use mortise_client::server::redis::Value;
    use mortise_client::server::redis::sentinel::{SentinelClient, SentinelServerType};
    use mortise_harness::{array, eventually_within, text, try_cmd, wait_for_sync};

    let patience = std::time::Duration::from_secs(60);
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    let sentinel = Server::builder().sentinel();
    let sentinel = sentinel.watching("locks", primary.port(), 1).start();
    let (urls, role) = (vec![sentinel.url()], SentinelServerType::Master);
    let mine = SentinelClient::build(urls, "locks", None, role).unwrap();
    let mine = Client::builder(mine).unwrap().response_timeout(ms(500));
    let mine = mine.connect().await.unwrap();
    // A wait leaves its connection behind for the next one.
    let guard = client(&primary).await.lock("k").acquire().await.unwrap();
    let busy = mine.lock("k").wait(ms(50)).acquire().await;
    assert!(busy.unwrap_err().is_busy());
    guard.release().await.unwrap();
    eventually_within(patience, "the sentinel knows the replica", || {
        let known = cmd!(sentinel.connect(), "SENTINEL", "REPLICAS", "locks");
        matches!(known, Value::Array(replicas) if replicas.len() == 1)
    });
    primary.stop_signal();
    eventually_within(patience, "the replica is the primary", || {
        // The sentinel kills all connections of a server that it promotes.
        let role = try_cmd!(replica.connect(), "ROLE");
        role.is_ok_and(|role| text(&array(&role)[0]) == "master")
    });
    let direct = client(&replica).await;
    let guard = direct.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    // Whatever is asked first finds the new primary.
    crate::support::eventually("it is found", || async {
        mine.info("k").await.is_ok_and(|it| it.is_some())
    })
    .await;
    let lock = mine.lock("k");
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    await_waiters(&direct, "k", 1).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    primary.cont_signal();
}
