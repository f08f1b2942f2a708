//! Several servers, and quorums over them.

use std::time::Duration;

use mortise_client::{Builder, Client, Error, Quorum};
use mortise_harness::{Server, cmd, is_nil, server_micros};

use super::proxy::Proxy;
use super::{client, ms};

/// A quorum of these servers, with this time limit for the reply of one.
pub(crate) async fn connect<U: AsRef<str>>(
    urls: impl IntoIterator<Item = U>,
    node_timeout: Duration,
) -> Quorum {
    let builder = patient(Quorum::builder(urls).unwrap());
    let quorum = builder.response_timeout(node_timeout).connect().await;
    quorum.unwrap()
}

/// Gives connecting more time than a busy machine needs.
pub(crate) fn patient(builder: Builder<Quorum>) -> Builder<Quorum> {
    builder.connect_timeout(ms(10_000))
}

/// So many servers and a quorum, whose time limit for one is enough for a busy machine.
pub(crate) async fn quorum_of(count: usize) -> (Servers, Quorum) {
    quorum_within(count, ms(2_000)).await
}

/// The same with another time limit.
pub(crate) async fn quorum_within(count: usize, node_timeout: Duration) -> (Servers, Quorum) {
    let servers = Servers::start(count);
    let quorum = servers.quorum_with(node_timeout).await;
    (servers, quorum)
}

/// Independent servers.
pub(crate) struct Servers(pub(crate) Vec<Server>);

impl Servers {
    pub(crate) fn start(count: usize) -> Servers {
        Servers((0..count).map(|_| Server::start()).collect())
    }

    /// A proxy before each server.
    pub(crate) async fn proxies(&self) -> Vec<Proxy> {
        let mut proxies = Vec::new();
        for server in &self.0 {
            proxies.push(Proxy::of(server).await);
        }
        proxies
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.0.iter().map(Server::url).collect()
    }

    pub(crate) fn builder(&self) -> Builder<Quorum> {
        patient(Quorum::builder(self.urls()).unwrap())
    }

    /// A quorum whose time limit for a server is enough for a busy machine.
    pub(crate) async fn quorum(&self) -> Quorum {
        self.quorum_with(ms(2_000)).await
    }

    pub(crate) async fn quorum_with(&self, node_timeout: Duration) -> Quorum {
        let quorum = connect(self.urls(), node_timeout).await;
        // Opens every connection.
        let warm = quorum.lock("warm").lease(ms(60_000)).wait(ms(30_000));
        warm.acquire().await.unwrap().release().await.unwrap();
        self.await_free("warm").await;
        quorum
    }

    /// A client of each server.
    pub(crate) async fn clients(&self) -> Vec<Client> {
        let all: Vec<_> = (0..self.0.len()).collect();
        self.clients_of(&all).await
    }

    async fn clients_of(&self, nodes: &[usize]) -> Vec<Client> {
        let mut clients = Vec::new();
        for node in nodes {
            clients.push(client(&self.0[*node]).await);
        }
        clients
    }

    /// Waits until a request queues for the lock on one of these nodes, and returns which. It is not always the first: a
    /// client does not queue on a node that was slow to answer.
    pub(crate) async fn await_waiter(&self, nodes: &[usize], key: &str) -> usize {
        let clients = self.clients_of(nodes).await;
        let found = std::cell::Cell::new(None);
        super::eventually("a request waits", || async {
            for (node, client) in nodes.iter().zip(&clients) {
                let info = client.info(key).await.unwrap();
                if info.is_some_and(|info| info.waiters == 1) {
                    found.set(Some(*node));
                }
            }
            found.get().is_some()
        })
        .await;
        found.get().unwrap()
    }

    /// Waits until all servers have granted a lock: the last of them may do so after a majority has made it.
    pub(crate) async fn await_granted(&self, key: &str) {
        super::eventually("all have granted it", || async {
            self.taken(key).len() == self.0.len()
        })
        .await;
    }

    /// Why this server has not granted the lock, by the client's error.
    pub(crate) fn reason<'e>(&self, error: &'e Error, node: usize) -> Option<&'e Error> {
        let Error::NoQuorum { nodes, .. } = error else {
            panic!("{error:?}");
        };
        let addr = self.0[node].addr();
        let node = nodes.iter().find(|node| node.server == addr)?;
        Some(&node.reason)
    }

    /// Makes another owner hold a key on some servers.
    pub(crate) fn occupy(&self, nodes: &[usize], key: &str, lease: u64) {
        for node in nodes {
            let mut conn = self.0[*node].connect();
            cmd!(conn, "LOCK.ACQUIRE", key, "somebody", lease);
        }
    }

    pub(crate) fn vacate(&self, nodes: &[usize], key: &str) {
        for node in nodes {
            let mut conn = self.0[*node].connect();
            cmd!(conn, "LOCK.RELEASE", key, "somebody", "ALL");
        }
    }

    /// A server's wall clock in microseconds, from which it makes tokens.
    pub(crate) fn clock(&self, node: usize) -> u64 {
        server_micros(&mut self.0[node].connect())
    }

    /// Waits until nobody holds a key or waits for it on any of the servers.
    pub(crate) async fn await_free(&self, key: &str) {
        for client in self.clients().await {
            super::await_free(&client, key).await;
        }
    }

    /// The servers on which somebody holds a key or waits for it now.
    pub(crate) fn taken(&self, key: &str) -> Vec<usize> {
        let taken = |node: &usize| !is_nil(&cmd!(self.0[*node].connect(), "LOCK.INFO", key));
        (0..self.0.len()).filter(taken).collect()
    }
}
