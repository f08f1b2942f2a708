//! The servers of a quorum, each with a client of its own, and what they have in common.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;

use crate::lock::Core;
use crate::net::{Identities, Timeouts, task};
use crate::quorum::clocks::{Clocks, Reading};
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

    /// Reads, in the background, a server's clock, where it is connected to: otherwise the question leaves later. A server that does
    /// not tell makes acquiring slower, no more: nothing is proposed to a quorum whose clocks are not known.
    pub(super) fn read_clock(self: &Arc<Self>, server: usize, key: &[u8]) {
        let endpoint = &self.all[server].endpoint;
        if !endpoint.is_connected(key) {
            return;
        }
        let asked = BootInstant::now();
        let command = Command::Plain(&[b"INFO", b"server"]);
        let answer = endpoint.route(key).send(&command, asked);
        let servers = self.clone();
        task::spawn(&self.all[server].runtime, async move {
            if let Ok(Reply::Text(info)) = answer.await
                && let Some(micros) = server_info::clock(&info)
            {
                let reading = Reading {
                    micros,
                    asked,
                    answered: BootInstant::now(),
                };
                lock(&servers.clocks).read(server, reading);
            }
        });
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}
