//! The ways to reach a server: a connection that the application has, a Unix socket, Sentinel, Redis Cluster, TLS.

use mortise_client::Client;
use mortise_harness::{Server, cmd, eventually, text};
use tokio::task::JoinSet;

use crate::support::proxy::Proxy;
use crate::support::{self, ms};

/// Acquires a lock, at once and after a wait, and releases it.
async fn exercise(client: &Client, key: &str) {
    let guard = client.lock(key).acquire().await.unwrap();
    let busy = client.lock(key).wait(ms(20)).acquire().await;
    assert!(busy.unwrap_err().is_busy());
    let waiting = tokio::spawn(client.lock(key).acquire());
    support::await_waiters(client, key, 1).await;
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn locks_work_over_a_unix_socket() {
    let server = Server::builder().unix_socket().start();
    let client = Client::connect(format!("unix://{}", server.socket().display()))
        .await
        .unwrap();
    exercise(&client, "k").await;
}

/// A client that opens its connections as the documentation of the `redis` crate does.
async fn client_with_default_connections(server: &Server) -> Client {
    let redis = mortise_client::redis::Client::open(server.url()).unwrap();
    let client = Client::with(move || {
        let redis = redis.clone();
        async move { redis.get_multiplexed_async_connection().await }
    });
    client.connect().await.unwrap()
}

#[tokio::test]
async fn locks_work_over_connections_that_the_application_opens() {
    let server = Server::start();
    exercise(&client_with_default_connections(&server).await, "k").await;
}

/// Such a connection fails each request that has no reply within 500 ms, and a call for letters waits for a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_keeps_its_connection_whatever_time_limit_that_has() {
    let server = Server::start();
    let client = client_with_default_connections(&server).await;
    let guard = client.lock("k").acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("k").acquire());
    let mut conn = server.connect();
    let mut collector = || {
        eventually("letters are collected", || {
            let clients = text(&cmd!(conn, "CLIENT LIST")).to_lowercase();
            let collector = clients.lines().find(|it| it.contains("cmd=lock.mail"))?;
            Some(collector.split(' ').next()?.to_owned())
        })
    };
    let (first, calls) = (collector(), server.calls("lock.mail"));
    eventually("they are collected again", || {
        server.calls("lock.mail") > calls + 2
    });
    assert_eq!(collector(), first, "another connection");
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn locks_work_with_a_database_a_password_and_either_protocol() {
    let server = Server::builder().config("requirepass", "secret").start();
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://:secret@{}/3?protocol={protocol}", server.addr());
        let client = Client::connect(url).await.unwrap();
        exercise(&client, "k").await;
    }
}

#[cfg(feature = "cluster")]
#[tokio::test]
async fn in_a_cluster_each_wait_goes_to_the_node_with_the_key() {
    let cluster = mortise_harness::Cluster::start(2, Server::builder);
    // Two keys on each node.
    let mut keys = Vec::new();
    for home in [0, 0, 1, 1] {
        let mut names = (keys.len()..).map(|n| format!("key{n}"));
        let name = names.find(|key| cluster.home_of(key) == home && !keys.contains(key));
        keys.push(name.unwrap());
    }
    let plain = Client::connect(cluster.primaries[1].url()).await.unwrap();
    let error = plain.lock(&keys[0]).acquire().await.unwrap_err();
    assert!(error.to_string().contains("Client::cluster"), "{error}");
    let client = Client::cluster([cluster.primaries[0].url()]).unwrap();
    let client = client.connect().await.unwrap();
    for key in &keys {
        exercise(&client, key).await;
    }
    // All are renewed, whatever their slots.
    let mut guards = Vec::new();
    for key in &keys {
        guards.push(client.lock(key).lease(ms(3_000)).acquire().await.unwrap());
    }
    let deadlines: Vec<_> = guards.iter().map(|guard| guard.deadline()).collect();
    support::eventually("all are renewed", || async {
        let mut held = guards.iter().zip(&deadlines);
        held.all(|(guard, before)| guard.deadline() > *before)
    })
    .await;
    assert!(guards.iter().all(|guard| guard.is_valid()));
}

#[tokio::test]
async fn the_next_sentinel_names_the_primary_when_the_first_is_silent() {
    let primary = Server::start();
    let sentinel = Server::builder().sentinel();
    let sentinel = sentinel.watching("locks", primary.port(), 1).start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("redis://{}/", silent.local_addr().unwrap());
    let builder = Client::sentinel([silent, sentinel.url()], "locks").unwrap();
    // The primary may take this long. The silent Sentinel takes longer.
    let client = builder.connect_timeout(ms(1_500)).build().unwrap();
    let is_up = async || client.info("k").await.is_ok();
    support::eventually("a Sentinel names the primary", is_up).await;
    exercise(&client, "k").await;
}

#[tokio::test]
async fn what_many_tasks_request_at_the_same_time_is_sent_together() {
    const TASKS: usize = 32;
    const LOCKS: usize = 30;
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let url = proxy.url();
    // The proxy has the test's thread, and the client one of its own.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let working = runtime.spawn(async move {
        let client = Client::connect(url).await.unwrap();
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let lock = client.lock(format!("k{task}"));
            tasks.spawn(async move {
                for _ in 0..LOCKS {
                    let guard = lock.clone().acquire().await.unwrap();
                    guard.release().await.unwrap();
                }
            });
        }
        tasks.join_all().await;
    });
    working.await.unwrap();
    runtime.shutdown_background();
    let (arrivals, requests) = (proxy.requests_read(), 2 * TASKS * LOCKS);
    assert!(
        arrivals < requests / 4,
        "{arrivals} for {requests} requests"
    );
}

#[tokio::test]
async fn a_panic_of_what_opens_connections_is_an_error_of_one_try() {
    let server = Server::start();
    let redis = mortise_client::redis::Client::open(server.url()).unwrap();
    let (broken, is_broken) = tokio::sync::watch::channel(true);
    let client = Client::with(move || {
        let (redis, is_broken) = (redis.clone(), *is_broken.borrow());
        async move {
            assert!(!is_broken, "a bug of the application");
            redis.get_multiplexed_async_connection().await
        }
    });
    let client = client.build().unwrap();
    let refused = client.lock("k").try_acquire().await.unwrap_err();
    assert!(refused.to_string().contains("panicked"), "{refused}");
    broken.send_replace(false);
    exercise(&client, "k").await;
}
