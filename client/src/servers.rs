//! The servers of a client: one, a cluster, or a quorum of several. Sends commands to them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Cmd, Pipeline};

#[cfg(feature = "cluster")]
use crate::cluster::Cluster;
use crate::error::{Error, Failed};
use crate::link::Reply;
use crate::name::Bytes;
use crate::node::{Node, Place, Route};

/// Which servers a client has.
pub(crate) enum Servers {
    One(Arc<Node>),
    #[cfg(feature = "cluster")]
    Cluster(Cluster),
    /// Independent servers, a majority of which decides.
    Quorum(Vec<Arc<Node>>),
}

/// How often a request follows a redirection.
const REDIRECTIONS: u32 = 5;

/// Commands for one server, and which of all they are.
struct Batch {
    node: Arc<Node>,
    commands: Pipeline,
    numbers: Vec<usize>,
}

impl Servers {
    /// Every server that is known.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        match self {
            Servers::One(node) => vec![node.clone()],
            #[cfg(feature = "cluster")]
            Servers::Cluster(cluster) => cluster.nodes(),
            Servers::Quorum(nodes) => nodes.clone(),
        }
    }

    /// Where a key is.
    pub(crate) async fn route(&self, key: &Bytes) -> Result<Route, Error> {
        let _ = key;
        match self {
            Servers::One(node) => Ok(Route::to(node.clone())),
            #[cfg(feature = "cluster")]
            Servers::Cluster(cluster) => cluster.find(key).await,
            Servers::Quorum(_) => Err(not_over_quorum(
                "servers could be left with different holders if some did not answer",
            )),
        }
    }

    /// A hash tag by which a name is on the same server as a key, where that needs one.
    pub(crate) fn tag(&self, key: &Bytes) -> Option<String> {
        let _ = key;
        match self {
            #[cfg(feature = "cluster")]
            Servers::Cluster(_) => Some(crate::cluster::tag(key)),
            _ => None,
        }
    }

    /// Where a request goes after this error; `None` where it is final.
    pub(crate) fn redirected(
        &self,
        route: &Route,
        key: &Bytes,
        error: &Error,
    ) -> Option<Result<Route, Error>> {
        let _ = key;
        match (self, error) {
            #[cfg(feature = "cluster")]
            (Servers::Cluster(cluster), error) => cluster.redirected(route, key, error).map(Ok),
            (_, Error::Refused { code, .. }) if code == "MOVED" || code == "ASK" => {
                Some(Err(Error::Invalid(format!(
                    "{} is a node of a cluster: build the client with `Client::cluster` (feature `cluster`)",
                    route.node.name
                ))))
            }
            _ => None,
        }
    }

    /// Learns from a failure where keys may be.
    pub(crate) fn notice(&self, failed: &Failed) {
        let _ = failed;
        #[cfg(feature = "cluster")]
        if let (Servers::Cluster(cluster), Failed::Refused(error) | Failed::Unknown(error)) =
            (self, failed)
            && error.passes()
        {
            cluster.failed();
        }
    }

    /// Sends a command about a key, and follows it through a cluster.
    pub(crate) async fn call(
        &self,
        place: &Place,
        command: &Cmd,
        limit: Duration,
    ) -> Result<Reply, Failed> {
        let mut route = Route::to(self.home(place));
        let mut redirections = 0;
        loop {
            let error = match route.call(command, limit).await {
                Err(Failed::Refused(error)) => error,
                Err(failed) => {
                    self.notice(&failed);
                    return Err(failed);
                }
                answered => return answered,
            };
            redirections += 1;
            match self.redirected(&route, &place.key, &error) {
                Some(Ok(next)) if redirections <= REDIRECTIONS => route = next,
                Some(Err(error)) => return Err(Failed::Refused(error)),
                _ => {
                    let failed = Failed::Refused(error);
                    self.notice(&failed);
                    return Err(failed);
                }
            }
        }
    }

    /// Sends a command to each place, those to one server in one write. Returns the answers in the same order.
    pub(crate) async fn call_each(
        &self,
        calls: &[(Place, Cmd)],
        limit: Duration,
    ) -> Vec<Result<Reply, Failed>> {
        if let [(place, command)] = calls {
            return vec![self.call(place, command, limit).await];
        }
        let batches = self.batches(calls);
        let sending = batches
            .iter()
            .map(|batch| batch.node.link.call_all(&batch.commands, limit));
        let mut replies: Vec<Result<Reply, Failed>> = Vec::new();
        replies.resize_with(calls.len(), || {
            Err(Failed::Unknown(Error::unexpected(&"no reply")))
        });
        for (batch, answer) in batches.iter().zip(join_all(sending).await) {
            match answer {
                Ok(answer) => {
                    let sent = answer.sent;
                    for (number, value) in batch.numbers.iter().zip(answer.values) {
                        replies[*number] = value
                            .map(|value| Reply { value, sent })
                            .map_err(Failed::Refused);
                    }
                }
                Err(failed) => {
                    self.notice(&failed);
                    for number in &batch.numbers {
                        replies[*number] = Err(failed.clone());
                    }
                }
            }
        }
        for (reply, (place, command)) in replies.iter_mut().zip(calls) {
            if is_redirection(reply) {
                *reply = self.call(place, command, limit).await;
            }
        }
        replies
    }

    fn batches(&self, calls: &[(Place, Cmd)]) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        for (number, (place, command)) in calls.iter().enumerate() {
            let node = self.home(place);
            let known = batches
                .iter()
                .position(|batch| Arc::ptr_eq(&batch.node, &node));
            let at = known.unwrap_or_else(|| {
                batches.push(Batch {
                    node,
                    commands: Pipeline::new(),
                    numbers: Vec::new(),
                });
                batches.len() - 1
            });
            batches[at].commands.add_command(command.clone());
            batches[at].numbers.push(number);
        }
        batches
    }

    /// The server that has a place's key now, as far as is known.
    fn home(&self, place: &Place) -> Arc<Node> {
        match self {
            #[cfg(feature = "cluster")]
            Servers::Cluster(cluster) => cluster
                .home(&place.key)
                .unwrap_or_else(|| place.node.clone()),
            _ => place.node.clone(),
        }
    }

    /// Sends a command to every server, and awaits all answers.
    pub(crate) async fn call_all(
        &self,
        command: &Cmd,
        limit: Duration,
    ) -> Vec<(Arc<Node>, Result<Reply, Failed>)> {
        let call = |node: Arc<Node>| async {
            let answer = node.link.call(command, limit).await;
            (node, answer)
        };
        join_all(self.nodes().into_iter().map(call)).await
    }
}

fn is_redirection(reply: &Result<Reply, Failed>) -> bool {
    match reply {
        Err(Failed::Refused(Error::Refused { code, .. })) => code == "MOVED" || code == "ASK",
        _ => false,
    }
}

/// The error for what a quorum cannot do, and why.
pub(crate) fn not_over_quorum(why: &str) -> Error {
    Error::Invalid(format!("not possible over a quorum: {why}"))
}
