//! A server hangs, or its connections die silently: every request ends in time, and nothing piles up.

use std::time::{Duration, Instant};

use mortise_client::{Client, Error};
use mortise_harness::Server;
use tokio::task::JoinSet;

use crate::support::quorum::Servers;
use crate::support::{assert_invalid, await_waiters, client, client_within, eventually, ms, start};

/// Far above the time limits here, even on a slow machine, and far below what the requests would take one after another.
const SOON: Duration = Duration::from_secs(10);

async fn impatient(server: &Server) -> Client {
    client_within(server.url(), ms(200)).await
}

#[tokio::test]
async fn requests_to_a_hanging_server_end_in_time_and_leave_no_task() {
    let server = Server::start();
    let client = impatient(&server).await;
    let runtime = tokio::runtime::Handle::current();
    let tasks = || runtime.metrics().num_alive_tasks();
    let before = tasks();
    server.stop_signal();
    let mut asking = JoinSet::new();
    for n in 0..200 {
        let lock = client.lock(format!("k{n}")).lease(ms(1000));
        asking.spawn(async move {
            let asked = Instant::now();
            assert!(lock.clone().try_acquire().await.is_err());
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

/// A connection's line in `/proc/net/tcp`: local and remote address, state, queues, and which timer runs.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_kernel_probes_a_connection_on_which_a_request_waits() {
    let (server, client) = start().await;
    let _guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("k").acquire());
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

#[tokio::test]
async fn all_waiters_with_a_limit_get_an_error_in_time_when_the_server_hangs_and_all_without_go_on()
{
    const COUNT: u64 = 200;
    let server = Server::start();
    let (mine, other) = (impatient(&server).await, client(&server).await);
    let guard = other.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let (mut limited, mut patient) = (JoinSet::new(), JoinSet::new());
    for _ in 0..COUNT / 2 {
        let lock = mine.lock("k").lease(ms(60_000));
        let brief = lock.clone().wait(ms(2_000));
        patient.spawn(async move { lock.acquire().await?.release().await });
        limited.spawn(async move { brief.acquire().await });
    }
    await_waiters(&other, "k", COUNT).await;
    server.stop_signal();
    let stopped = Instant::now();
    while let Some(ended) = limited.join_next().await {
        let error = ended.unwrap().unwrap_err();
        assert!(error.is_transient(), "{error:?}");
    }
    assert!(stopped.elapsed() < SOON, "{:?}", stopped.elapsed());
    tokio::time::sleep(ms(1_000)).await;
    server.cont_signal();
    guard.release().await.unwrap();
    for released in patient.join_all().await {
        released.unwrap();
    }
}

#[tokio::test]
async fn a_wait_for_a_silent_server_lasts_as_long_as_its_limit() {
    let server = Server::start();
    let mine = impatient(&server).await;
    server.stop_signal();
    let asked = Instant::now();
    let error = mine.lock("k").wait(ms(3_000)).acquire().await.unwrap_err();
    let took = asked.elapsed();
    server.cont_signal();
    let is_it = matches!(&error, Error::Connection { error, .. } if error.is_timeout());
    assert!(is_it, "{error:?}");
    assert!(took > ms(1_500) && took < ms(3_000) + SOON, "{took:?}");
}

#[tokio::test]
async fn the_longest_duration_means_no_limit() {
    let servers = Servers::start(3);
    let one = Client::builder(servers.0[0].url()).unwrap();
    let one = one.response_timeout(Duration::MAX).build().unwrap();
    let quorum = servers.quorum().await;
    for lock in [one.lock("one"), quorum.lock("all")] {
        let lock = lock.lease(ms(60_000)).wait(Duration::MAX);
        let guard = lock.clone().acquire().await.unwrap();
        let waiting = tokio::spawn(lock.acquire());
        // On the first server that replied: any, on a busy machine.
        eventually("it queues", || async {
            servers.0.iter().any(|it| it.gauge("waiters") == 1)
        })
        .await;
        guard.release().await.unwrap();
        drop(waiting.await.unwrap().unwrap());
    }
    let quorum = servers.builder().response_timeout(Duration::MAX);
    assert_invalid(quorum.build().unwrap().lock("k").acquire().await);
}
