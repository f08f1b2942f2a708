//! A TCP proxy between client and server that can fall silent, be slow, cut its connections, or throw replies away.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What happens to bytes on their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// They pass.
    Flows,
    /// They stay where they are, both ways, as behind a broken switch; connecting works.
    Stalls,
    /// The connections there are stall; ones opened from now on flow.
    StallsOld,
    /// Each way takes so long, in order.
    Takes(Duration),
    /// Requests pass, replies are thrown away. A connection that has lost any is closed afterwards: none has holes.
    LosesReplies,
    /// Connections are closed, and new ones as soon as they are opened.
    Cut,
}

/// A proxy in front of one server; gone with this value.
#[derive(Debug)]
pub(crate) struct Proxy {
    addr: SocketAddr,
    traffic: Arc<watch::Sender<Traffic>>,
    /// Sent to whenever connections are cut, even if they flow again before anybody looks.
    cuts: Arc<watch::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn of(server: &mortise_harness::Server) -> Proxy {
        let target: SocketAddr = server.addr().parse().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let traffic = Arc::new(watch::channel(Traffic::Flows).0);
        let cuts = Arc::new(watch::channel(()).0);
        let (sender, cutter) = (traffic.clone(), cuts.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let cut = cutter.subscribe();
                tokio::spawn(join(client, target, sender.clone(), cut));
            }
        });
        Proxy {
            addr,
            traffic,
            cuts,
            task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    pub(crate) fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
        if traffic == Traffic::Cut {
            self.cuts.send_replace(());
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Traffic::Cut);
        self.task.abort();
    }
}

async fn join(
    client: TcpStream,
    target: SocketAddr,
    traffic: Arc<watch::Sender<Traffic>>,
    mut cut: watch::Receiver<()>,
) {
    let Ok(server) = TcpStream::connect(target).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    if *traffic.borrow() == Traffic::Cut {
        return;
    }
    let is_new = *traffic.borrow() == Traffic::StallsOld;
    let way = |replies| Way {
        traffic: traffic.subscribe(),
        is_new,
        replies,
    };
    tokio::select! {
        _ = cut.changed() => {}
        () = way(false).pass(from_client, to_server) => {}
        () = way(true).pass(from_server, to_client) => {}
    }
}

/// One direction of a connection.
struct Way {
    traffic: watch::Receiver<Traffic>,
    /// Opened while the older ones stalled.
    is_new: bool,
    replies: bool,
}

impl Way {
    async fn pass(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let (sender, mut due) = mpsc::unbounded_channel();
        let traffic = self.traffic.clone();
        let read = async move {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(n @ 1..) = from.read(&mut buffer).await {
                let delay = match *traffic.borrow() {
                    Traffic::Takes(time) => time,
                    _ => Duration::ZERO,
                };
                let _ = sender.send((Instant::now() + delay, buffer[..n].to_vec()));
            }
        };
        let write = async move {
            let mut has_lost = false;
            while let Some((at, bytes)) = due.recv().await {
                tokio::time::sleep_until(at).await;
                if !self.opens().await {
                    return;
                }
                if self.replies && *self.traffic.borrow() == Traffic::LosesReplies {
                    has_lost = true;
                    continue;
                }
                if has_lost {
                    return;
                }
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = write => {}
            () = async { read.await; std::future::pending().await } => {}
        }
    }

    /// Waits until bytes may pass; `false` when the proxy is gone.
    async fn opens(&mut self) -> bool {
        let is_new = self.is_new;
        let stalls = move |it: &Traffic| match it {
            Traffic::Stalls => true,
            Traffic::StallsOld => !is_new,
            _ => false,
        };
        self.traffic.wait_for(|it| !stalls(it)).await.is_ok()
    }
}
