//! The servers of a client: one, a cluster, or a quorum of several. Sends commands to them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::Cmd;

#[cfg(feature = "cluster")]
use crate::cluster::Cluster;
use crate::error::{Error, Failed};
use crate::link::Reply;
use crate::name::Bytes;
use crate::node::{Node, Place};

/// Which servers a client has.
pub(crate) enum Servers {
    One(Arc<Node>),
    #[cfg(feature = "cluster")]
    Cluster(Arc<Cluster>),
    /// Independent servers, a majority of which decides.
    Quorum(Vec<Arc<Node>>),
}

/// How often a request follows a redirection.
pub(crate) const REDIRECTIONS: u32 = 5;

impl Servers {
    /// Every server that may have something of this client.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        match self {
            Servers::One(node) => vec![node.clone()],
            #[cfg(feature = "cluster")]
            Servers::Cluster(cluster) => cluster.nodes(),
            Servers::Quorum(nodes) => nodes.clone(),
        }
    }

    /// Where a key is, where one server decides on it.
    pub(crate) async fn route(&self, key: &Bytes) -> Result<Place, Error> {
        match self {
            Servers::One(node) => Ok(Place::new(node.clone(), key.clone())),
            #[cfg(feature = "cluster")]
            Servers::Cluster(cluster) => cluster.find(key).await,
            Servers::Quorum(_) => Err(not_over_quorum(
                "servers could be left with different holders if some did not answer",
            )),
        }
    }

    /// Whether the server has the slot of a name, as far as is known. Where there are no slots, it has all names.
    pub(crate) fn has(&self, node: &Arc<Node>, name: &[u8]) -> bool {
        match self {
            #[cfg(feature = "cluster")]
            Servers::Cluster(cluster) => {
                let home = cluster.home(name);
                home.is_some_and(|home| Arc::ptr_eq(&home, node))
            }
            _ => {
                let _ = (node, name);
                true
            }
        }
    }

    /// Where a request goes after this answer: elsewhere in a cluster, which also learns from a failure; `None` if the answer
    /// stays. An error where a cluster is taken for one server.
    pub(crate) fn next<T>(
        &self,
        place: &Place,
        answer: &Result<T, Failed>,
    ) -> Result<Option<Place>, Error> {
        match (self, answer) {
            #[cfg(feature = "cluster")]
            (Servers::Cluster(cluster), Err(failed)) => Ok(cluster.redirected(place, failed)),
            (_, Err(Failed::Refused(error))) if error.is_redirection() => {
                let node = &place.node.name;
                Err(Error::Invalid(format!(
                    "{node} is a node of a cluster: build the client with `Client::cluster` (feature `cluster`)"
                )))
            }
            _ => Ok(None),
        }
    }

    /// Sends a command about a key, and follows it through a cluster.
    pub(crate) async fn call(
        &self,
        place: &Place,
        command: &Cmd,
        limit: Duration,
    ) -> Result<Reply, Failed> {
        self.send(place, command, limit, false).await
    }

    /// Sends a renewal. Returns its reply once replicas have it, if they have to.
    pub(crate) async fn confirm(
        &self,
        place: &Place,
        renewal: &Cmd,
        limit: Duration,
    ) -> Result<Reply, Failed> {
        self.send(place, renewal, limit, true).await
    }

    async fn send(
        &self,
        place: &Place,
        command: &Cmd,
        limit: Duration,
        is_confirmed: bool,
    ) -> Result<Reply, Failed> {
        let (mut moved, mut redirections) = (self.home(place).await, 0..REDIRECTIONS);
        loop {
            let place = moved.as_ref().unwrap_or(place);
            let answer = match &place.node.replicas {
                Some(replicas) if is_confirmed => {
                    replicas.confirm(command.clone(), place.is_asking).await
                }
                _ => place.call(command, limit).await,
            };
            match self.next(place, &answer).map_err(Failed::Refused)? {
                Some(next) if redirections.next().is_some() => moved = Some(next),
                _ => return answer,
            }
        }
    }

    /// Where a place's key is now, in a cluster that knows.
    async fn home(&self, place: &Place) -> Option<Place> {
        match self {
            #[cfg(feature = "cluster")]
            Servers::Cluster(cluster) => cluster.find(&place.key).await.ok(),
            _ => {
                let _ = place;
                None
            }
        }
    }

    /// Sends a command to every server, of a cluster to every primary, and awaits all answers.
    pub(crate) async fn call_all(
        &self,
        command: &Cmd,
        limit: Duration,
    ) -> Vec<(Arc<Node>, Result<Reply, Failed>)> {
        let call = |node: Arc<Node>| async {
            let answer = node.link.call(command, limit).await;
            (node, answer)
        };
        let nodes = match self {
            #[cfg(feature = "cluster")]
            Servers::Cluster(cluster) => cluster.primaries(),
            _ => self.nodes(),
        };
        join_all(nodes.into_iter().map(call)).await
    }
}

/// The error for what a quorum cannot do, and why.
pub(crate) fn not_over_quorum(why: &str) -> Error {
    Error::Invalid(format!("not possible over a quorum: {why}"))
}
