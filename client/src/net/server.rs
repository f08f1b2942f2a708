//! One server as those who lock see it: a single one, the primary that Sentinel names, or a cluster, whose slot map and
//! connections are our own: one node that hangs makes nobody slow whose lock is on another.

use std::sync::Arc;

use tokio::runtime::Handle;

#[cfg(feature = "cluster")]
use super::cluster::Cluster;
use super::connection::{Limits, Pending};
#[cfg(feature = "cluster")]
use super::dial::Address;
use super::dial::Dial;
use super::peer::{Peer, Route};
use crate::proto::command::Command;
use crate::proto::reply::{Answer, Reply};
use crate::value::clock::BootInstant;

/// One server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    One {
        peer: Arc<Peer>,
        fails_over: bool,
    },
    #[cfg(feature = "cluster")]
    Cluster(Arc<Cluster>),
}

/// So often a request is sent elsewhere.
const REDIRECTIONS: u32 = 8;

impl Server {
    pub(crate) fn one(
        name: String,
        dial: Dial,
        limits: Limits,
        runtime: Handle,
        fails_over: bool,
    ) -> Server {
        let peer = Arc::new(Peer::new(name.clone(), dial, limits, runtime));
        Server {
            name,
            kind: Kind::One { peer, fails_over },
        }
    }

    #[cfg(feature = "cluster")]
    pub(crate) fn cluster(
        name: String,
        seeds: Vec<Address>,
        limits: Limits,
        runtime: Handle,
    ) -> Server {
        Server {
            name,
            kind: Kind::Cluster(Arc::new(Cluster::new(seeds, limits, runtime))),
        }
    }

    /// Whether another may take its place: who meets none asks again.
    pub(crate) fn fails_over(&self) -> bool {
        match &self.kind {
            Kind::One { fails_over, .. } => *fails_over,
            #[cfg(feature = "cluster")]
            Kind::Cluster(_) => true,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        !matches!(self.kind, Kind::One { .. })
    }

    /// Where requests about a key go, as far as is known.
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables))]
    pub(crate) fn route(&self, key: &[u8]) -> Route {
        match &self.kind {
            Kind::One { peer, .. } => Route::to(peer.clone()),
            #[cfg(feature = "cluster")]
            Kind::Cluster(cluster) => Route::to(cluster.peer(key)),
        }
    }

    /// Finds out where keys are, if that is to be found out.
    pub(crate) async fn prepare(&self) {
        #[cfg(feature = "cluster")]
        if let Kind::Cluster(cluster) = &self.kind
            && !cluster.is_known()
        {
            cluster.refresh().await;
        }
    }

    /// Reads what an answer says of the way that the request went; where it is to be sent instead, if elsewhere.
    #[cfg_attr(not(feature = "cluster"), allow(unused_variables))]
    pub(crate) fn redirected(&self, route: &Route, answer: &Answer) -> Option<Route> {
        match &self.kind {
            Kind::One { peer, fails_over } => {
                if *fails_over
                    && matches!(answer, Ok(Reply::Error(line)) if line.starts_with("READONLY"))
                {
                    // It is no primary any more.
                    peer.reconnect();
                }
                None
            }
            #[cfg(feature = "cluster")]
            Kind::Cluster(cluster) => cluster.redirected(route, answer),
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
        let now = BootInstant::now();
        let pending: Vec<Pending> = match &self.kind {
            Kind::One { peer, .. } => vec![peer.send(command, now)],
            #[cfg(feature = "cluster")]
            Kind::Cluster(cluster) => cluster.send_to_primaries(command).await,
        };
        futures_util::future::join_all(pending).await
    }
}
