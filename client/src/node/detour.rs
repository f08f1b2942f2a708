//! Another way to a server of a cluster that does not answer on the shared connection: it may have handed its slots over,
//! or only its connection may be dead. Whoever has to do with the other servers is not disturbed by the search: it takes
//! another connection to the cluster, which takes the shared one's place only if the server with the key answers on it.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use redis::Cmd;

use super::Node;
use super::opening::Shared;
use crate::error::{Error, is_passing};
use crate::info;
use crate::link::Link;
use crate::sync::lock;
use crate::wire;

/// How long after a search in vain there is none.
const PAUSE: Duration = Duration::from_secs(1);

/// A search on its way; there is one at a time.
pub(super) struct Detour {
    node: Arc<Node>,
    /// The connection on which the server with the key did not answer.
    number: u64,
    /// What it did not answer, or as much as that.
    look: Cmd,
}

impl Detour {
    /// Starts a search for the server with `key`, or for all, unless there is one.
    pub(super) fn start(node: &Arc<Node>, mut shared: MutexGuard<'_, Shared>, key: Option<&[u8]>) {
        if std::mem::replace(&mut shared.seeking, true) {
            return;
        }
        let detour = Detour {
            node: node.clone(),
            number: shared.number,
            look: key.map_or_else(|| info::top(1), info::look),
        };
        // A runtime that ends drops what it is given, and that takes the lock.
        drop(shared);
        tokio::spawn(detour.run());
    }

    async fn run(self) {
        match self.find().await {
            Some(link) => self.take(link),
            None => tokio::time::sleep(PAUSE).await,
        }
    }

    async fn find(&self) -> Option<Link> {
        let node = &self.node;
        let link = node.open().await.ok()?;
        let answer = link.ask(&self.look, node.config.response_timeout).await;
        match wire::value(answer, &node.name) {
            Err(Error::Connection { .. }) => None,
            Err(Error::Refused(line)) if is_passing(&line) => None,
            _ => Some(link),
        }
    }

    fn take(&self, link: Link) {
        let mut shared = lock(&self.node.shared);
        if shared.number == self.number && shared.link.is_some() {
            shared.number += 1;
            shared.link = Some(link);
            drop(shared);
            lock(&self.node.idle).clear();
        }
    }
}

impl Drop for Detour {
    fn drop(&mut self) {
        lock(&self.node.shared).seeking = false;
    }
}
