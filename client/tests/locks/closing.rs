//! The end of a process: `close` releases what it still holds.

use futures_util::FutureExt;
use mortise_client::{Client, Error, Guard, Quorum};
use mortise_harness::{Server, cmd, is_nil};
use tokio::runtime::Runtime;

use crate::support::quorum::{Servers, connect};
use crate::support::{assert_lost, await_waiters, ms};

fn is_free(server: &Server, key: &str) -> bool {
    is_nil(&cmd!(server.connect(), "LOCK.INFO", key))
}

#[track_caller]
fn assert_closed(refused: Result<Guard, Error>) {
    assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
}

#[test]
fn closing_the_client_releases_a_guard_that_was_never_released() {
    let server = Server::start();
    for round in 0..30 {
        let runtime = Runtime::new().unwrap();
        let _alive = runtime.block_on(async {
            let client = Client::connect(server.url()).await.unwrap();
            let lock = client.lock("k").lease(ms(60_000));
            drop(lock.clone().read().await.unwrap());
            let alive = lock.read().await.unwrap();
            client.close(ms(20_000)).await;
            assert!(!alive.is_valid());
            alive
        });
        drop(runtime);
        assert!(is_free(&server, "k"), "in round {round}");
    }
}

#[tokio::test]
async fn closing_awaits_the_release_that_another_task_has_sent() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let guard = client.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    cmd!(server.connect(), "CLIENT", "PAUSE", 500, "WRITE");
    // A task that does not await it any more must not keep the client open.
    let mut releasing = Box::pin(guard.release());
    assert!(releasing.as_mut().now_or_never().is_none());
    client.close(ms(20_000)).await;
    assert!(is_free(&server, "k"));
    releasing.await.unwrap();
}

#[test]
fn a_closed_quorum_leaves_nothing_on_its_servers_and_grants_nothing() {
    let servers = Servers::start(3);
    let runtime = Runtime::new().unwrap();
    let _alive = runtime.block_on(async {
        let quorum = connect(servers.urls(), ms(2000)).await;
        let lock = quorum.lock("k").lease(ms(60_000));
        let alive = lock.clone().acquire().await.unwrap();
        quorum.close(ms(20_000)).await;
        assert_closed(lock.acquire().await);
        alive
    });
    drop(runtime);
    assert_eq!(servers.taken("k"), [0_usize; 0]);
}

#[tokio::test]
async fn a_closed_client_refuses_to_acquire() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let guard = client.lock("k").acquire().await.unwrap();
    client.close(ms(20_000)).await;
    assert_lost(guard.release().await, None);
    assert_closed(client.lock("k").acquire().await);
}

#[test]
fn building_a_client_outside_a_runtime_is_an_error_that_names_the_reason() {
    let one = Client::builder("redis://127.0.0.1/").unwrap().build();
    let urls = ["redis://a/", "redis://b/", "redis://c/"];
    let several = Quorum::builder(urls).unwrap().build();
    for error in [one.unwrap_err(), several.unwrap_err()] {
        assert!(matches!(error, Error::NoRuntime), "{error:?}");
        assert!(error.to_string().contains("no tokio runtime"), "{error}");
    }
}

#[tokio::test]
async fn closing_ends_waits_at_once_and_leaves_no_waiter() {
    let server = Server::start();
    let client = Client::connect(server.url()).await.unwrap();
    let direct = Client::connect(server.url()).await.unwrap();
    let _holder = direct.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(client.lock("k").acquire());
    // A future that waits and that nobody polls any more.
    let mut unpolled = Box::pin(client.lock("k").acquire());
    let brief = tokio::time::timeout(ms(300), &mut unpolled).await;
    assert!(brief.is_err());
    await_waiters(&direct, "k", 2).await;
    client.close(ms(20_000)).await;
    let info = direct.info("k").await.unwrap().unwrap();
    assert_eq!(info.waiters, 0, "closing has left a waiter");
    assert_closed(waiting.await.unwrap());
    assert_closed(unpolled.await);
}
