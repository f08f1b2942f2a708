//! One server as those who lock see it: a single one, the primary that Sentinel names, or a cluster, whose slot map and
//! connections are our own: one node that hangs makes nobody slow whose lock is on another.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::runtime::Handle;

use super::cluster::Cluster;
use super::connection::Limits;
use super::dial::{Address, Dial, Way};
use super::peer::{Peer, Route};
use crate::proto::command::Command;
use crate::proto::reply::{Answer, Reply};
use crate::value::clock::BootInstant;

/// One server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    fails_over: bool,
    nodes: Nodes,
}

#[derive(Debug)]
enum Nodes {
    One(Arc<Peer>),
    Cluster(Arc<Cluster>),
}

/// So often a request is sent elsewhere.
const REDIRECTIONS: u32 = 8;

impl Server {
    pub(crate) fn one(name: String, dial: Dial, limits: Limits, runtime: Handle) -> Server {
        Server {
            fails_over: !matches!(dial.way, Way::Direct(_)),
            nodes: Nodes::One(Peer::new(name.clone(), dial, limits, runtime)),
            name,
        }
    }

    pub(crate) fn cluster(
        name: String,
        seeds: Vec<Address>,
        limits: Limits,
        runtime: Handle,
    ) -> Server {
        Server {
            fails_over: true,
            nodes: Nodes::Cluster(Arc::new(Cluster::new(seeds, limits, runtime))),
            name,
        }
    }

    /// Whether another may take its place: who meets none asks again.
    pub(crate) fn fails_over(&self) -> bool {
        self.fails_over
    }

    pub(crate) fn is_cluster(&self) -> bool {
        !matches!(self.nodes, Nodes::One(_))
    }

    /// Where requests about a key go, as far as is known.
    pub(crate) fn route(&self, key: &[u8]) -> Route {
        match &self.nodes {
            Nodes::One(peer) => Route::to(peer.clone()),
            Nodes::Cluster(cluster) => Route::to(cluster.peer(key)),
        }
    }

    /// Finds out where keys are, if that is to be found out.
    pub(crate) async fn prepare(&self) {
        if let Nodes::Cluster(cluster) = &self.nodes {
            cluster.prepare().await;
        }
    }

    /// Reads what an answer says of the way that the request went; where it is to be sent instead, if elsewhere.
    pub(crate) fn redirected(&self, route: &Route, answer: &Answer) -> Option<Route> {
        match &self.nodes {
            Nodes::One(peer) => {
                if self.fails_over
                    && matches!(answer, Ok(Reply::Error(line)) if line.starts_with("READONLY"))
                {
                    // It is no primary any more.
                    peer.reconnect();
                }
                None
            }
            Nodes::Cluster(cluster) => cluster.redirected(route, answer),
        }
    }

    /// Sends a command to where it belongs and awaits its answer.
    pub(crate) async fn call(&self, command: &Command<'_>) -> Answer {
        self.prepare().await;
        let mut route = self.route(command.key().unwrap_or_default());
        let mut left = REDIRECTIONS;
        loop {
            let answer = route.send(command, BootInstant::now()).await;
            match self.redirected(&route, &answer) {
                Some(next) if left > 0 => (route, left) = (next, left - 1),
                _ => return answer,
            }
        }
    }

    /// Asks each process that has locks.
    pub(crate) async fn call_each(&self, command: &Command<'_>) -> Vec<Answer> {
        let peers = match &self.nodes {
            Nodes::One(peer) => vec![peer.clone()],
            Nodes::Cluster(cluster) => match cluster.primaries().await {
                Ok(primaries) => primaries,
                Err(failure) => return vec![Err(failure)],
            },
        };
        let now = BootInstant::now();
        let pending = peers.into_iter().map(|it| Route::to(it).send(command, now));
        join_all(pending).await
    }
}
