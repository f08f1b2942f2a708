//! What the client's tests share: clients of real servers, and a proxy that disturbs connections.

#![allow(dead_code, reason = "each test file uses its own part of this")]

pub(crate) mod dropping;
#[cfg(unix)]
pub(crate) mod fork;
pub(crate) mod proxy;
pub(crate) mod quorum;

use std::time::{Duration, Instant};

use mortise_client::{Client, Guard, LockInfo};
use mortise_harness::{Server, cmd};

pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How late a busy machine may do what is due.
pub(crate) const LATE: Duration = Duration::from_secs(4);

/// A client with a short time limit for replies.
pub(crate) async fn client(server: &Server) -> Client {
    client_of(&server.url()).await
}

pub(crate) async fn client_of(url: &str) -> Client {
    Client::builder(url)
        .unwrap()
        .response_timeout(Duration::from_secs(2))
        .connect()
        .await
        .unwrap()
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

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
