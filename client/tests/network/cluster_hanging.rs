//! One primary of a cluster hangs: locks on the others are not affected.

use std::time::{Duration, Instant};

use mortise_client::Client;
use mortise_harness::{Builder, Cluster, Server};

use crate::support::dropping::poll_once;
use crate::support::{await_waiters, eventually, ms};

/// How long the primary hangs: longer than the leases, and than several time limits for a reply.
const HANGS: Duration = Duration::from_secs(13);

/// A node of a cluster without failover, which serves its slots while others are missing.
fn node() -> Builder {
    Server::builder()
        .config("cluster-node-timeout", "60000")
        .config("cluster-require-full-coverage", "no")
}

async fn connect(seeds: &[String]) -> Client {
    Client::cluster(seeds).unwrap().connect().await.unwrap()
}

/// Keys whose slots this primary has.
fn keys_of<const N: usize>(cluster: &Cluster, home: usize) -> [String; N] {
    let mut keys = (0..)
        .map(|n| format!("key{n}"))
        .filter(|key| cluster.home_of(key) == home);
    std::array::from_fn(|_| keys.next().unwrap())
}

/// Acquires a lock and releases it. Returns the id of the connection that was granted.
async fn take(client: &Client, key: &str) -> u64 {
    let guard = client.lock(key).try_acquire().await.unwrap().expect("free");
    let info = client.info(key).await.unwrap().expect("held");
    guard.release().await.unwrap();
    info.holds[0].client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_primary_does_not_affect_locks_on_the_others() {
    let cluster = Cluster::start(3, node);
    let seeds: Vec<String> = cluster.nodes().map(Server::url).collect();
    let (client, other) = (connect(&seeds).await, connect(&seeds).await);
    let [held, waited, asked, new] = keys_of(&cluster, 1);
    let [far_held, far_waited] = keys_of(&cluster, 0);

    let (short, long) = (ms(8_000), ms(300_000));
    let guard = client.lock(&held).lease(short).acquire().await.unwrap();
    // Its renewal is due at the same time.
    let far_guard = client.lock(&far_held).lease(short).acquire().await.unwrap();
    let theirs = other.lock(&waited).lease(long).acquire().await.unwrap();
    let far_theirs = other.lock(&far_waited).lease(long).acquire().await.unwrap();
    let [waiting, far_waiting] = [&waited, &far_waited].map(|key| {
        let lock = client.lock(key);
        tokio::spawn(async move { lock.clone().acquire().await })
    });
    await_waiters(&other, &far_waited, 1).await;
    await_waiters(&other, &waited, 1).await;
    let connection = take(&client, &asked).await;

    cluster.primaries[0].stop_signal();
    let stopped = Instant::now();
    let newcomer = connect(&seeds).await;
    take(&newcomer, &new).await;
    while stopped.elapsed() < HANGS {
        assert!(client.lock(&far_held).try_acquire().await.is_err());
        assert_eq!(take(&client, &asked).await, connection, "another one");
        let busy = client.lock(&waited).wait(ms(50)).acquire().await;
        assert!(busy.unwrap_err().is_busy());
        assert!(guard.is_valid(), "{guard:?}");
    }
    assert!(!far_guard.is_valid(), "{far_guard:?}");
    assert!(!waiting.is_finished());
    let info = await_waiters(&other, &waited, 1).await;
    let waited = info.queue[0].waited;
    assert!(waited >= HANGS, "the waiter has lost its place: {waited:?}");
    take(&newcomer, &new).await;
    theirs.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    guard.release().await.unwrap();

    cluster.primaries[0].cont_signal();
    far_theirs.release().await.unwrap();
    drop(far_waiting.await.unwrap().unwrap());
    eventually("everybody is served again", || async {
        client.lock(&far_held).try_acquire().await.is_ok()
            && newcomer.lock(&far_held).try_acquire().await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_can_be_connected_to_whichever_of_its_primaries_hangs() {
    let cluster = Cluster::start(3, node);
    let seeds: Vec<String> = cluster.nodes().map(Server::url).collect();
    for (number, primary) in cluster.primaries.iter().enumerate() {
        let [key] = keys_of(&cluster, (number + 1) % 3);
        primary.stop_signal();
        let client = connect(&seeds).await;
        take(&client, &key).await;
        primary.cont_signal();
    }
}

#[tokio::test]
async fn a_future_that_is_polled_no_more_stops_no_other_from_finding_its_node() {
    let cluster = Cluster::start(3, node);
    let seeds: Vec<String> = cluster.nodes().map(Server::url).collect();
    let client = Client::cluster(&seeds).unwrap().build().unwrap();
    let mut parked = Box::pin(client.lock("parked").acquire());
    assert!(poll_once(&mut parked).await.is_pending());
    let acquired = tokio::time::timeout(ms(10_000), client.lock("other").acquire()).await;
    acquired.expect("in time").unwrap().release().await.unwrap();
    parked.await.unwrap().release().await.unwrap();
}
