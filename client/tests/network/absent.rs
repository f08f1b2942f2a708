//! Servers that are unreachable for a while, or refuse clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use mortise_client::{Client, Error, Quorum};
use mortise_harness::{Conn, Server, cmd, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{LATE, PATIENCE, ms};

#[tokio::test]
async fn waiting_requests_survive_a_restart_of_the_server_and_others_fail() {
    let mut server = Server::start();
    let builder = Client::builder(server.url()).unwrap();
    let client = builder.response_timeout(LATE).connect().await.unwrap();
    client
        .lock("k")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    server.sigkill();
    let refused = client.lock("k").try_acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Connection { .. }), "{refused:?}");
    let locks = [client.lock("a"), client.lock("b").wait(ms(30_000))];
    let waiting = locks.map(|lock| tokio::spawn(async move { lock.clone().acquire().await }));
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
        let error = Client::connect(server.url()).await.unwrap_err();
        assert!(error.to_string().contains(&server.addr()), "{error}");
        errors.push(error);
        assert!(errors.len() < 20, "{errors:?}");
    }
    // The client sent nothing, so it has nothing to clean up and does not connect again.
    let client = Client::builder(server.url()).unwrap().build().unwrap();
    client.lock("k").try_acquire().await.unwrap_err();
    let stats = ["INFO", "stats"];
    let rejected = |conn: &mut Conn| {
        let stats = text(&conn.cmd(&stats));
        let line = stats
            .lines()
            .find(|it| it.starts_with("rejected_connections"));
        line.unwrap().to_owned()
    };
    let before = rejected(&mut conn);
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(rejected(&mut conn), before);
    cmd!(conn, "CONFIG", "SET", "maxclients", 100);
}

#[tokio::test]
async fn a_wrong_password_is_tried_once_for_each_call() {
    let server = Server::start();
    let url = format!("redis://somebody:wrong@{}/", server.addr());
    let client = Client::builder(url).unwrap().build().unwrap();
    let taking = tokio::time::timeout(LATE, client.lock("k").acquire()).await;
    let error = taking.expect("it does not try again").unwrap_err();
    assert!(
        error.to_string().contains("authentication failed"),
        "{error}"
    );
    assert!(!error.is_transient());
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(server.calls("auth"), 1);
}

#[tokio::test]
async fn an_idle_quorum_does_not_keep_connecting_to_an_unreachable_server() {
    let servers = [Server::start(), Server::start()];
    let gone = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("redis://{}/", gone.local_addr().unwrap());
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = gone.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            drop(connection);
        }
    });
    let quorum = Quorum::builder([servers[0].url(), servers[1].url(), address]).unwrap();
    let quorum = quorum
        .response_timeout(ms(500))
        .connect_timeout(ms(10_000))
        .connect()
        .await
        .unwrap();
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
    let denying = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("redis://{}/", denying.local_addr().unwrap());
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = attempts.clone();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = denying.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            let line = "-DENIED Redis is running in protected mode\r\n";
            // A server that is as far away as others reads the first command before its reply arrives.
            let _ = connection.read(&mut [0; 1]).await;
            let _ = connection.write_all(line.as_bytes()).await;
        }
    });
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
    let refused = lock.clone().acquire().await.unwrap_err();
    let is_replica = matches!(&refused, Error::Refused { code, .. } if code == "READONLY");
    assert!(is_replica, "{refused:?}");
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
    let is_stale = matches!(&refused, Error::Refused { code, .. } if code == "MASTERDOWN");
    assert!(is_stale, "{refused:?}");
}
