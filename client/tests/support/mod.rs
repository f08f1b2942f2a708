//! What the client's tests share: clients of real servers, and a proxy that disturbs connections.

#![allow(dead_code, reason = "each test file uses its own part of this")]

pub(crate) mod dropping;
#[cfg(unix)]
pub(crate) mod fork;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod quorum;

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mortise_client::{Client, Error, Guard, LockInfo, Loss, redis};
use mortise_harness::{Server, cmd};

use proxy::Proxy;

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How late a busy machine may do what is due.
pub(crate) const LATE: Duration = Duration::from_secs(4);

/// A server, and a client of it.
pub(crate) async fn start() -> (Server, Client) {
    let server = Server::start();
    let client = client(&server).await;
    (server, client)
}

/// A server, a proxy before it, and a client behind the proxy.
pub(crate) async fn start_behind_proxy() -> (Server, Proxy, Client) {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let client = client_of(&proxy.url()).await;
    (server, proxy, client)
}

/// A client with a short time limit for replies.
pub(crate) async fn client(server: &Server) -> Client {
    client_of(&server.url()).await
}

pub(crate) async fn client_of(url: &str) -> Client {
    client_within(url, Duration::from_secs(2)).await
}

/// A client with this time limit for replies.
pub(crate) async fn client_within(url: impl AsRef<str>, limit: Duration) -> Client {
    let builder = Client::builder(url).unwrap().response_timeout(limit);
    builder.connect().await.unwrap()
}

/// A client whose first connection leads to one URL, and all later ones to another.
pub(crate) async fn client_by_way_of(first: &str, later: &str) -> Client {
    let is_first = AtomicBool::new(true);
    let [first, later] = [first, later].map(|url| redis::Client::open(url).unwrap());
    let builder = Client::with(move || {
        let is_first = is_first.swap(false, Ordering::Relaxed);
        let to = if is_first { &first } else { &later }.clone();
        async move { to.get_multiplexed_async_connection().await }
    });
    builder.response_timeout(ms(500)).connect().await.unwrap()
}

#[cfg(feature = "cluster")]
pub(crate) async fn client_of_cluster(cluster: &mortise_harness::Cluster) -> Client {
    let seeds = cluster.nodes().map(Server::url);
    Client::cluster(seeds).unwrap().connect().await.unwrap()
}

/// Has the server refuse a command with `NOPERM` from now on.
pub(crate) fn refuse(server: &Server, command: &str) {
    let rule = format!("-{command}");
    cmd!(server.connect(), "ACL", "SETUSER", "default", rule);
}

/// Checks a condition until it holds.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, holds: impl FnMut() -> F) {
    eventually_in(PATIENCE, what, holds).await;
}

/// The same, for as long as `limit`.
pub(crate) async fn eventually_in<F: Future<Output = bool>>(
    limit: Duration,
    what: &str,
    mut holds: impl FnMut() -> F,
) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < limit, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until nobody holds the lock and nobody waits for it.
pub(crate) async fn await_free(client: &Client, key: &str) {
    eventually("the lock is free", || async {
        client.info(key).await.unwrap().is_none()
    })
    .await;
}

/// Waits until this many requests queue for the lock. A connection that breaks meanwhile is opened again.
pub(crate) async fn await_waiters(client: &Client, key: &str, count: u64) -> LockInfo {
    let started = Instant::now();
    loop {
        let info = client.info(key).await;
        match info {
            Ok(Some(info)) if info.waiters == count => return info,
            _ => assert!(
                started.elapsed() < 3 * PATIENCE,
                "not {count} waiters: {info:?}"
            ),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Fails unless the guard keeps others out while it is valid, and its release frees the lock.
pub(crate) async fn assert_holds(guard: Guard, server: &Server, key: &str) {
    let direct = client(server).await;
    // Late requests have arrived by then.
    tokio::time::sleep(ms(500)).await;
    let other = direct.lock(key).try_acquire().await.unwrap();
    assert!(guard.is_valid() && other.is_none(), "{guard:?} {other:?}");
    guard.release().await.unwrap();
    await_free(&direct, key).await;
}

/// Fails unless the server has refused a request with this code.
#[track_caller]
pub(crate) fn assert_code(error: &Error, code: &str) {
    let is_it = matches!(error, Error::Refused { code: it, .. } if it == code);
    assert!(is_it, "{error:?}");
}

/// Fails unless the client has refused a request before sending anything.
#[track_caller]
pub(crate) fn assert_invalid<T: Debug>(refused: Result<T, Error>) {
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

/// Fails unless the lock was lost, for this reason if there is one.
#[track_caller]
pub(crate) fn assert_lost<T: Debug>(result: Result<T, Error>, reason: impl Into<Option<Loss>>) {
    let reason = reason.into();
    match result {
        Err(Error::Lost(loss)) => assert!(reason.is_none_or(|reason| reason == loss), "{loss:?}"),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
