//! What the server hides: operators rename or forbid CONFIG and CLUSTER.
//!
//! Where a promise rests on a hidden setting, the module assumes the strictest value. It logs once which promise costs what, and
//! `INFO lock` names the setting.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::ffi::{Context, MainThread};

/// What the server was found to hide. Here and not in `state`, whose parts note it.
static HIDDEN: MainThread<RefCell<BTreeSet<Hidden>>> =
    MainThread::new(RefCell::new(BTreeSet::new()));

/// Something that the module cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hidden {
    MinReplicasToWrite,
    MinReplicasMaxLag,
    ClusterNodeTimeout,
    ClusterNodes,
}

impl Hidden {
    /// How the server names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::MinReplicasToWrite => "min-replicas-to-write",
            Self::MinReplicasMaxLag => "min-replicas-max-lag",
            Self::ClusterNodeTimeout => "cluster-node-timeout",
            Self::ClusterNodes => "CLUSTER NODES",
        }
    }

    fn assumed(self) -> &'static str {
        match self {
            Self::MinReplicasToWrite => {
                "so that no two hold one lock after a failover, locks are granted and renewed only while every attached replica, \
                 and at least one, has acknowledged recent data"
            }
            Self::MinReplicasMaxLag | Self::ClusterNodeTimeout => {
                "so that no two hold one lock after a failover, replicas have to be as prompt as the grace demands, or as the \
                 server's default does, and after a stall nothing is granted or renewed for as long as the longer of the two"
            }
            Self::ClusterNodes => {
                "so that no key is granted whose holder another node knows, LOCK.MACQUIRE gets TRYAGAIN as if its slot were moving, \
                 and waiters whose slot has left are answered only when a hold there ends"
            }
        }
    }
}

/// The module cannot read it, and a promise rests on it.
pub(crate) fn note(ctx: &Context<'_>, what: Hidden) {
    let is_new = HIDDEN.get(ctx).borrow_mut().insert(what);
    if is_new {
        ctx.warn(&format!(
            "the server hides {} (its command is renamed or forbidden): {}",
            what.name(),
            what.assumed()
        ));
    }
}

/// What is hidden, for `INFO lock`.
pub(crate) fn names(ctx: &Context<'_>) -> String {
    let hidden = HIDDEN.get(ctx).borrow();
    let names: Vec<_> = hidden.iter().map(|what| what.name()).collect();
    names.join(", ")
}
