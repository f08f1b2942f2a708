//! A TCP proxy between client and server that can fall silent, cut its connections, or throw replies away.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// They pass.
    Flows,
    /// They stay where they are, both ways, as behind a broken switch; connecting works.
    Stalls,
    /// Requests pass, replies are thrown away.
    LosesReplies,
    /// Connections are closed, and new ones as soon as they are opened.
    Cut,
}

/// A proxy in front of one server; gone with this value.
#[derive(Debug)]
pub(crate) struct Proxy {
    addr: SocketAddr,
    traffic: Arc<watch::Sender<Traffic>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn of(server: &mortise_harness::Server) -> Proxy {
        let target: SocketAddr = server.addr().parse().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let traffic = Arc::new(watch::channel(Traffic::Flows).0);
        let sender = traffic.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(join(client, target, sender.clone()));
            }
        });
        Proxy {
            addr,
            traffic,
            task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    pub(crate) fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.traffic.send_replace(Traffic::Cut);
        self.task.abort();
    }
}

async fn join(client: TcpStream, target: SocketAddr, traffic: Arc<watch::Sender<Traffic>>) {
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let mut cut = traffic.subscribe();
    tokio::select! {
        _ = cut.wait_for(|traffic| *traffic == Traffic::Cut) => {}
        _ = pass(from_client, to_server, traffic.subscribe(), false) => {}
        _ = pass(from_server, to_client, traffic.subscribe(), true) => {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut traffic: watch::Receiver<Traffic>,
    replies: bool,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if traffic.wait_for(|it| *it != Traffic::Stalls).await.is_err() {
            return;
        }
        if replies && *traffic.borrow() == Traffic::LosesReplies {
            continue;
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}
