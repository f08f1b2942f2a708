//! Servers that are unreachable for a while, or refuse clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use mortise_client::{Client, Error};
use mortise_harness::{Server, cmd, info};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::quorum::connect;
use crate::support::{LATE, PATIENCE, assert_code, client_within, ms};

#[tokio::test]
async fn waiting_requests_survive_a_restart_of_the_server_and_others_fail() {
    let mut server = Server::start();
    let client = client_within(server.url(), LATE).await;
    let guard = client.lock("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    server.sigkill();
    let refused = client.lock("k").try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Connection { .. }), "{refused:?}");
    let locks = [client.lock("a"), client.lock("b").wait(ms(30_000))];
    let waiting = locks.map(|lock| tokio::spawn(lock.acquire()));
    tokio::time::sleep(ms(1_000)).await;
    server.start_again();
    for waiting in waiting {
        let guard = tokio::time::timeout(3 * PATIENCE, waiting).await;
        assert!(guard.unwrap().unwrap().unwrap().is_valid());
    }
}

#[tokio::test]
async fn attempts_without_a_pause_do_not_keep_the_client_from_connecting_again() {
    let mut server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    server.sigkill();
    client.lock("k").try_acquire().await.unwrap_err();
    server.start_again();
    let begun = Instant::now();
    // On one thread: a future that never yields would keep the connection's task from running.
    while client.lock("k").try_acquire().await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "it does not connect");
    }
}

#[tokio::test]
async fn an_error_names_the_server_that_closes_the_connection() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "CONFIG", "SET", "maxclients", 1);
    let mut errors = Vec::new();
    let quotes = |error: &Error| error.to_string().contains("max number of clients");
    // It quotes the server, unless that was faster than the client's first command.
    while !errors.iter().any(quotes) {
        server.stop_signal();
        let connecting = tokio::spawn(Client::connect(server.url()));
        tokio::time::sleep(ms(20)).await;
        server.cont_signal();
        let error = connecting.await.unwrap().unwrap_err();
        assert!(error.to_string().contains(&server.addr()), "{error}");
        errors.push(error);
        assert!(errors.len() < 20, "{errors:?}");
    }
    // The client sent nothing, so it has nothing to clean up and does not connect again.
    let client = Client::builder(server.url()).unwrap().build().unwrap();
    client.lock("k").try_acquire().await.unwrap_err();
    let mut rejected = || info(&cmd!(conn, "INFO", "stats"))["rejected_connections"].clone();
    let before = rejected();
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(rejected(), before);
    cmd!(conn, "CONFIG", "SET", "maxclients", 100);
}

#[tokio::test]
async fn a_wrong_password_is_tried_once_for_each_call() {
    let server = Server::start();
    let url = format!("redis://somebody:wrong@{}/", server.addr());
    let client = Client::builder(url).unwrap().build().unwrap();
    let taking = tokio::time::timeout(LATE, client.lock("k").acquire()).await;
    let error = taking.expect("it does not try again").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("authentication failed"), "{error}");
    assert!(!error.is_transient());
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(server.calls("auth"), 1);
}

/// The URL of a server that closes each connection after this line, and the number of connections.
async fn refusing(line: &'static [u8]) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            if !line.is_empty() {
                // A server that is as far away as others reads the first command before its reply arrives.
                let _ = connection.read(&mut [0; 1]).await;
                let _ = connection.write_all(line).await;
            }
        }
    });
    (url, attempts)
}

#[tokio::test]
async fn an_idle_quorum_does_not_keep_connecting_to_an_unreachable_server() {
    let servers = [Server::start(), Server::start()];
    let (gone, attempts) = refusing(b"").await;
    let quorum = connect([servers[0].url(), servers[1].url(), gone], ms(500)).await;
    let guard = quorum.lock("k").acquire().await.unwrap();
    guard.release().await.unwrap();
    tokio::time::sleep(ms(1_500)).await;
    let before = attempts.load(Ordering::Relaxed);
    tokio::time::sleep(ms(3_000)).await;
    let since = attempts.load(Ordering::Relaxed) - before;
    assert!(since <= 1, "{since} attempts while nothing was asked");
}

#[tokio::test]
async fn an_error_names_the_server_that_denies_access_and_an_attempt_is_repeated_once_at_most() {
    let (url, attempts) = refusing(b"-DENIED Redis is running in protected mode\r\n").await;
    let client = Client::builder(url).unwrap().build().unwrap();
    let error = client.lock("k").try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Connection { .. }), "{error}");
    assert!(error.to_string().contains("protected mode"), "{error}");
    tokio::time::sleep(ms(1_000)).await;
    assert!(attempts.load(Ordering::Relaxed) <= 2);
}

#[tokio::test]
async fn a_waiting_request_that_is_refused_is_not_repeated_without_a_pause() {
    let server = Server::start();
    let client = Client::connect(&server.url()).await.unwrap();
    cmd!(server.connect(), "REPLICAOF", "127.0.0.1", "1");
    let lock = client.lock("k").wait(ms(1_000));
    assert_code(&lock.acquire().await.unwrap_err(), "READONLY");
    let count = server.errors("READONLY");
    assert!((2..100).contains(&count), "{count} errors");
}

#[tokio::test]
async fn a_replica_that_has_no_primary_refuses_a_client_that_connects() {
    let replica = Server::start();
    let mut conn = replica.connect();
    cmd!(conn, "CONFIG", "SET", "replica-serve-stale-data", "no");
    cmd!(conn, "REPLICAOF", "127.0.0.1", "1");
    let refused = Client::connect(&replica.url()).await.unwrap_err();
    assert_code(&refused, "MASTERDOWN");
}
