//! A server hangs, or its connections die silently: every request ends in time, and nothing piles up.

use std::time::{Duration, Instant};

use mortise_client::{Client, Error};
use mortise_harness::Server;
use tokio::task::JoinSet;

use crate::support::quorum::Servers;
use crate::support::{await_waiters, client, eventually, ms};

/// Far above the time limits here, even on a slow machine, and far below what the requests would take one after another.
const SOON: Duration = Duration::from_secs(10);

async fn impatient(server: &Server) -> Client {
    let builder = Client::builder(server.url()).unwrap();
    let client = builder.response_timeout(ms(200)).connect().await;
    client.unwrap()
}

#[tokio::test]
async fn all_waiters_get_an_error_at_the_same_time_when_the_server_hangs() {
    const COUNT: u64 = 200;
    let server = Server::start();
    let client = impatient(&server).await;
    let _guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..COUNT {
        let lock = client.lock("k");
        waiting.spawn(async move { lock.acquire().await });
    }
    await_waiters(&client, "k", COUNT).await;
    server.stop_signal();
    let stopped = Instant::now();
    while let Some(ended) = waiting.join_next().await {
        let error = ended.unwrap().unwrap_err();
        assert!(matches!(error, Error::Connection { .. }), "{error:?}");
    }
    assert!(stopped.elapsed() < SOON, "{:?}", stopped.elapsed());
    server.cont_signal();
}

#[tokio::test]
async fn requests_to_a_hanging_server_end_in_time_and_leave_no_task() {
    let server = Server::start();
    let client = impatient(&server).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    server.stop_signal();
    let mut asking = JoinSet::new();
    for n in 0..200 {
        let lock = client.lock(format!("k{n}")).lease(ms(1000));
        asking.spawn(async move {
            let asked = Instant::now();
            assert!(lock.try_acquire().await.is_err());
            asked.elapsed()
        });
        tokio::time::sleep(ms(5)).await;
    }
    let longest = asking.join_all().await.into_iter().max().unwrap();
    assert!(longest < SOON, "{longest:?}");
    server.cont_signal();
    eventually("the tasks have ended", || async { tasks() <= before + 10 }).await;
    assert!(client.lock("k").acquire().await.unwrap().is_valid());
}

#[tokio::test]
async fn the_longest_duration_means_no_limit() {
    const MAX: Duration = Duration::MAX;
    let servers = Servers::start(3);
    let one = client(&servers.0[0]).await;
    let builder = servers.builder().connect_timeout(MAX);
    let quorum = builder.connect().await.unwrap();
    let commands = |it: &Server| -> u64 {
        let stats = it.info("stats");
        stats["total_commands_processed"].parse().unwrap()
    };
    let busiest = |before: &[u64]| {
        let now = servers.0.iter().map(commands);
        now.zip(before).map(|(now, before)| now - before).max()
    };
    for lock in [one.lock("one"), quorum.lock("all")] {
        let lock = lock.lease(ms(60_000)).wait(MAX);
        let guard = lock.acquire().await.unwrap();
        let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
        // On the first server that replied: any, on a busy machine.
        eventually("it queues", || async {
            servers.0.iter().any(|it| it.gauge("waiters") == 1)
        })
        .await;
        let before: Vec<u64> = servers.0.iter().map(commands).collect();
        tokio::time::sleep(ms(500)).await;
        assert!(busiest(&before) < Some(50), "it polls");
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap();
    }
    let quorum = servers.builder().node_timeout(MAX).build().unwrap();
    let error = quorum.lock("k").acquire().await.map(drop).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
}

/// A connection's line in `/proc/net/tcp`: local and remote address, state, queues, and which timer runs.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_kernel_probes_a_connection_on_which_a_request_waits() {
    let server = Server::start();
    let client = client(&server).await;
    let _guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let lock = client.lock("k");
    let waiting = tokio::spawn(async move { lock.acquire().await.map(drop) });
    await_waiters(&client, "k", 1).await;
    let remote = format!("0100007F:{:04X}", server.port());
    // The shared connection and the one that waits.
    eventually("both have a keepalive timer", || async {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let lines = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let ours = lines.filter(|it| it[2] == remote && it[3] == "01");
        ours.filter(|it| it[5].starts_with("02:")).count() == 2
    })
    .await;
    waiting.abort();
}
