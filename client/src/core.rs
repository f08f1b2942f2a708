//! What all locks of one client share: its servers, its renewals, its place to run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, Value};
use tokio::runtime::Handle;

use crate::error::Error;
use crate::info::ServerAnswer;
use crate::node::Node;
use crate::proposal::Proposal;
use crate::renewal::Renewal;

/// One server, or the servers of a quorum, and what goes on with them in the background.
#[derive(Debug)]
pub(crate) struct Core {
    /// Tells clients apart where an owner is used with several.
    pub(crate) id: u64,
    /// In the order in which requests queue.
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) renewal: Renewal,
    pub(crate) proposal: Proposal,
    /// Where everything runs that must go on when its caller does not.
    pub(crate) runtime: Handle,
}

impl Core {
    pub(crate) fn new(nodes: Vec<Node>, runtime: Handle) -> Arc<Core> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Core {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            nodes: nodes.into_iter().map(Arc::new).collect(),
            renewal: Renewal::start(&runtime),
            proposal: Proposal::default(),
            runtime,
        })
    }

    /// How many servers make a majority: one of one, two of three, three of five.
    pub(crate) fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }

    pub(crate) fn is_quorum(&self) -> bool {
        self.nodes.len() > 1
    }

    /// Asks every server at the same time, each given as long as it may take to answer. In their order.
    pub(crate) async fn ask_each<T>(
        &self,
        cmd: Cmd,
        parse: impl Fn(Value) -> Result<T, Error>,
    ) -> Vec<ServerAnswer<T>> {
        let cmd = Arc::new(cmd);
        let parse = &parse;
        let asking = self.nodes.iter().map(|node| {
            let (asked, cmd) = (node.clone(), cmd.clone());
            let task = self.runtime.spawn(async move { asked.ask(&cmd).await });
            async move {
                let reply = task.await.unwrap_or(Err(Error::Closed));
                ServerAnswer {
                    server: node.name().to_owned(),
                    answer: reply.and_then(parse),
                }
            }
        });
        futures_util::future::join_all(asking).await
    }
}
