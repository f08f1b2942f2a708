//! Connections that die silently while the server is up: no request waits on them, and no waiter loses its place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mortise_client::Client;
use mortise_harness::{Server, cmd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::proxy::{Proxy, Traffic};
use crate::support::{
    await_waiters, client, client_by_way_of, client_of, client_within, eventually, ms, start,
};

#[tokio::test]
async fn a_request_does_not_wait_on_an_idle_connection_that_died_silently() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let (mine, direct) = (client_of(&proxy.url()).await, client(&server).await);
    let other = direct.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let busy = mine.lock("k").wait(ms(50)).acquire().await.unwrap_err();
    assert!(busy.is_busy(), "{busy:?}");
    // The shared connection, and the one that the wait has left open.
    proxy.set(Traffic::StallsOld);
    mine.lock("k").try_acquire().await.unwrap_err();
    let waiting = tokio::spawn(mine.lock("k").wait(ms(60_000)).acquire());
    await_waiters(&direct, "k", 1).await;
    other.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_waiter_keeps_its_place_when_the_shared_connection_dies() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    let direct = client(&server).await;
    let mine = client_by_way_of(&proxy.url(), &server.url()).await;
    let other = direct.lock("k").lease(ms(60_000)).acquire().await.unwrap();
    let waiting = tokio::spawn(mine.lock("k").acquire());
    await_waiters(&direct, "k", 1).await;
    // The client has the reply `QUEUED`, because it waits for letters.
    eventually("the client waits for letters", async || {
        server.info("clients")["blocked_clients"] == "1"
    })
    .await;
    proxy.set(Traffic::Stalls);
    // Long enough for several checks whether the server is up.
    tokio::time::sleep(ms(3_000)).await;
    other.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_lock_survives_a_dead_connection_while_its_server_is_up() {
    let server = Server::start();
    let proxy = Proxy::of(&server).await;
    // A reply may take up to two thirds of the lease, which is what is left at the first renewal.
    let client = client_within(proxy.url(), ms(4_000)).await;
    let guard = client.lock("k").lease(ms(6_000)).acquire().await.unwrap();
    let deadline = guard.deadline();
    proxy.set(Traffic::StallsOld);
    tokio::time::sleep(deadline.remaining() + ms(500)).await;
    assert!(guard.is_valid(), "{guard:?}");
}

#[tokio::test]
async fn a_renewal_by_hand_survives_a_closed_connection() {
    let (server, client) = start().await;
    let lock = client.lock("k").lease(ms(60_000)).auto_renew(false);
    let guard = lock.clone().acquire().await.unwrap();
    cmd!(server.connect(), "CLIENT", "KILL", "TYPE", "normal");
    guard.renew().await.unwrap();
}

/// The address of a relay to the server. It gives both ends of each connection to `carry`.
async fn relay<F>(
    server: &Server,
    carry: impl Fn(TcpStream, TcpStream) -> F + Send + 'static,
) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let target = server.addr();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(carry(client, server));
        }
    });
    url
}

/// Connects with a time limit that is far longer than that of a reply.
async fn connect_with_patience(url: String) {
    let builder = Client::builder(url).unwrap().response_timeout(ms(200));
    let client = builder.connect_timeout(ms(10_000)).connect().await;
    assert!(client.is_ok(), "{client:?}");
}

#[tokio::test]
async fn connecting_may_take_as_long_as_its_time_limit() {
    let server = Server::start();
    let url = relay(&server, |mut client, mut server| async move {
        // As a handshake of several round trips to a distant server.
        tokio::time::sleep(ms(500)).await;
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    });
    connect_with_patience(url.await).await;
}

#[tokio::test]
async fn connecting_goes_on_when_its_questions_get_no_reply_in_time() {
    let server = Server::start();
    let is_first = Arc::new(AtomicBool::new(true));
    let was_asked = is_first.clone();
    let url = relay(&server, move |client, server| {
        let (mut requests, mut to_client) = client.into_split();
        let (mut replies, mut to_server) = server.into_split();
        let is_first = is_first.clone();
        tokio::spawn(async move { tokio::io::copy(&mut replies, &mut to_client).await });
        async move {
            if !is_first.load(Ordering::Relaxed) {
                // The next connection opens late: the next question goes over the first one, too, and gets no reply at all.
                tokio::time::sleep(ms(100)).await;
            }
            let mut buffer = vec![0; 4_096];
            while let Ok(count @ 1..) = requests.read(&mut buffer).await {
                let sent = &buffer[..count];
                let asks = sent.windows(9).any(|it| it == b"LOCK.INFO");
                if asks && is_first.swap(false, Ordering::Relaxed) {
                    // Several times as long as the client waits for a reply.
                    tokio::time::sleep(ms(1_000)).await;
                }
                to_server.write_all(sent).await.unwrap();
            }
        }
    });
    connect_with_patience(url.await).await;
    assert!(!was_asked.load(Ordering::Relaxed));
}
