//! A waiter survives a failover, and then waits on the new primary.

use mortise_harness::{Server, cmd};

use crate::support::{await_waiters, client, ms};

#[tokio::test]
async fn a_waiter_whose_server_is_demoted_asks_again_until_it_is_a_primary() {
    let server = Server::start();
    let client = client(&server).await;
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let lock = client.lock("k").wait(ms(60_000));
    let waiting = tokio::spawn(async move { lock.clone().acquire().await.map(drop) });
    for _ in 0..3 {
        await_waiters(&client, "k", 1).await;
        cmd!(server.connect(), "REPLICAOF", "127.0.0.1", "1");
        // A replica refuses the request like every write.
        tokio::time::sleep(ms(300)).await;
        cmd!(server.connect(), "REPLICAOF", "NO", "ONE");
    }
    await_waiters(&client, "k", 1).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_after_a_failover_queues_on_the_new_primary() {
    use mortise_client::Client;
    use mortise_client::redis::Value;
    use mortise_harness::{array, eventually_within, text, try_cmd, wait_for_sync};

    let patience = std::time::Duration::from_secs(60);
    let primary = Server::start();
    let replica = Server::builder().replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    let sentinel = Server::builder().sentinel();
    let sentinel = sentinel.watching("locks", primary.port(), 1).start();
    let mine = Client::sentinel([sentinel.url()], "locks")
        .unwrap()
        .response_timeout(ms(500));
    let mine = mine.connect().await.unwrap();
    // After this wait, its connection stays open for the next one.
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
        // Sentinel closes all connections of a server that it promotes.
        let role = try_cmd!(replica.connect(), "ROLE");
        role.is_ok_and(|role| text(&array(&role)[0]) == "master")
    });
    let direct = client(&replica).await;
    let guard = direct.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    // The first requests find the new primary.
    crate::support::eventually("the client finds the new primary", || async {
        mine.info("k").await.is_ok_and(|it| it.is_some())
    })
    .await;
    let lock = mine.lock("k");
    let waiting = tokio::spawn(async move { lock.clone().acquire().await.map(drop) });
    await_waiters(&direct, "k", 1).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    primary.cont_signal();
}
