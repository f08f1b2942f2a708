//! A TCP proxy between client and server that can stall, delay, cut connections, or drop replies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What the proxy does with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// It passes them on.
    Flows,
    /// It keeps them, in both directions, as a broken switch does; connecting works.
    Stalls,
    /// Existing connections stall; new ones flow.
    StallsOld,
    /// Each direction takes this long, in order.
    Takes(Duration),
    /// Requests pass, replies are dropped. A connection that lost a reply is closed afterwards, so that no stream has gaps.
    LosesReplies,
    /// It closes connections, and new ones as soon as they open.
    Cut,
}

/// A proxy in front of one server. It ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    addr: SocketAddr,
    traffic: Arc<watch::Sender<Traffic>>,
    /// Signals each cut, even if connections flow again before their tasks run.
    cuts: Arc<watch::Sender<()>>,
    requests_read: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn of(server: &mortise_harness::Server) -> Proxy {
        let target: SocketAddr = server.addr().parse().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let traffic = Arc::new(watch::channel(Traffic::Flows).0);
        let cuts = Arc::new(watch::channel(()).0);
        let requests_read = Arc::<AtomicUsize>::default();
        let (sender, cutter, count) = (traffic.clone(), cuts.clone(), requests_read.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let cut = cutter.subscribe();
                tokio::spawn(join(client, target, sender.clone(), cut, count.clone()));
            }
        });
        Proxy {
            addr,
            traffic,
            cuts,
            requests_read,
            task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.addr)
    }

    /// How often it has read something that clients sent.
    pub(crate) fn requests_read(&self) -> usize {
        self.requests_read.load(Ordering::Relaxed)
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
    requests_read: Arc<AtomicUsize>,
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
    let direction = |replies| Direction {
        traffic: traffic.subscribe(),
        is_new,
        replies,
        requests_read: requests_read.clone(),
    };
    tokio::select! {
        _ = cut.changed() => {}
        () = direction(false).pass(from_client, to_server) => {}
        () = direction(true).pass(from_server, to_client) => {}
    }
}

/// One direction of a connection.
struct Direction {
    traffic: watch::Receiver<Traffic>,
    /// Opened while older connections stalled.
    is_new: bool,
    replies: bool,
    requests_read: Arc<AtomicUsize>,
}

impl Direction {
    async fn pass(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let (sender, mut due) = mpsc::unbounded_channel();
        let (traffic, requests_read) = (self.traffic.clone(), self.requests_read.clone());
        let replies = self.replies;
        let read = async move {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(n @ 1..) = from.read(&mut buffer).await {
                requests_read.fetch_add(usize::from(!replies), Ordering::Relaxed);
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
