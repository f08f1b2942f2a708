//! The servers of a quorum, each with a client of its own, and what they have in common.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;

use crate::lock::Core;
use crate::net::{Identities, Timeouts};
use crate::quorum::proposal::Proposal;
use crate::quorum::votes::majority;
use crate::value::{Error, Names, NodeFailure, NodeReason};

pub(crate) struct Servers {
    /// In the order in which requests queue.
    pub(super) all: Vec<Arc<Core>>,
    pub(super) names: Names,
    pub(super) timeouts: Timeouts,
    pub(super) proposal: Mutex<Proposal>,
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
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}
