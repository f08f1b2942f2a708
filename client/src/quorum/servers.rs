//! The servers of a quorum, each with a client of its own, and what they have in common.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;

use crate::lock::Core;
use crate::net::{Identities, Timeouts, task};
use crate::quorum::clocks::Clocks;
use crate::quorum::votes::majority;
use crate::value::{BootInstant, Error, Names, NodeFailure, NodeReason, lock};
use crate::wire::{Command, Reply, server_info};

pub(crate) struct Servers {
    /// In the order in which requests queue.
    pub(super) all: Vec<Arc<Core>>,
    pub(super) names: Names,
    pub(super) timeouts: Timeouts,
    pub(super) clocks: Mutex<Clocks>,
    pub(super) identities: Arc<Identities>,
}

impl Servers {
    pub(super) fn majority(&self) -> usize {
        majority(self.all.len())
    }

    /// Why too few servers have granted something: the reason of each that has not.
    pub(super) fn no_quorum(
        &self,
        granted: usize,
        reasons: impl IntoIterator<Item = (usize, NodeReason)>,
    ) -> Error {
        let failure = |(server, reason): (usize, NodeReason)| NodeFailure {
            server: self.all[server].endpoint.name.clone(),
            reason,
        };
        Error::NoQuorum {
            needed: self.majority(),
            granted,
            nodes: reasons.into_iter().map(failure).collect(),
        }
    }

    pub(super) async fn close(&self) {
        join_all(self.all.iter().map(|server| server.close())).await;
    }

    /// Reads a server's clock in the background, if that is due at `asked`, which is now. It asks only over an open connection: a new
    /// one would send the question later. Until a majority has answered, the client proposes nothing, and acquiring takes a
    /// second round trip.
    pub(super) fn read_clock(self: &Arc<Self>, server: usize, key: &[u8], asked: BootInstant) {
        let core = &self.all[server];
        if !core.endpoint.is_connected(key) || !lock(&self.clocks).is_due(server, asked) {
            return;
        }
        let command = Command::Plain(&[b"INFO", b"server"]);
        let answer = core.endpoint.route(key).send(&command, asked);
        // The task must not keep the connections of a dropped client open.
        let (servers, limit) = (Arc::downgrade(self), self.timeouts.answer);
        task::spawn(&core.runtime, async move {
            let Ok(Reply::Text(info)) = answer.await else {
                return;
            };
            // A reply that took longer, because this process was stopped, says little about the clock.
            let micros = server_info::clock(&info).filter(|_| asked.elapsed() <= limit);
            if let Some((servers, micros)) = servers.upgrade().zip(micros) {
                lock(&servers.clocks).read(server, micros, asked);
            }
        });
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}
