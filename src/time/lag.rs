//! How long an old primary may take to stop granting, and what the server hides: operators rename or forbid CONFIG and CLUSTER.
//!
//! Where a promise rests on a hidden setting, the module assumes the strictest value. It logs once which promise costs what, and
//! `INFO lock` names the setting.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::config;
use crate::ffi::{Context, MainThread};

/// What a server needs, beyond the lag, to see that a replica is gone: it counts whole seconds, once
/// a second. In milliseconds.
pub(crate) const MARGIN: u64 = 3_000;
/// The server's default of `min-replicas-max-lag`, in milliseconds.
const DEFAULT_LAG: u64 = 10_000;
/// The server's default of `cluster-node-timeout`, in milliseconds.
const DEFAULT_NODE_TIMEOUT: u64 = 15_000;

/// How long an old primary may take to stop granting, in milliseconds. The two differ where the server hides its setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lag {
    /// What this server keeps to as long as it is the primary.
    pub(crate) least: u64,
    /// What it waits for after a stall.
    pub(crate) most: u64,
}

impl Default for Lag {
    fn default() -> Self {
        Self {
            least: DEFAULT_LAG,
            most: DEFAULT_LAG,
        }
    }
}

impl Lag {
    /// The lag as it is configured. Where the server hides that, its default or what the grace leaves for it, whichever is stricter.
    pub(crate) fn read(ctx: &Context<'_>) -> Self {
        if let Some(lag) = configured(ctx) {
            return Self {
                least: lag,
                most: lag,
            };
        }
        note_hidden(ctx, setting(ctx));
        let left = config::promotion_grace().saturating_sub(config::MAX_LEASE.get() + MARGIN);
        let default = if ctx.is_cluster() {
            DEFAULT_NODE_TIMEOUT
        } else {
            DEFAULT_LAG
        };
        Self {
            least: left.min(default),
            most: left.max(default),
        }
    }
}

/// The setting of the server that configures the lag.
pub(crate) fn setting(ctx: &Context<'_>) -> Hidden {
    if ctx.is_cluster() {
        Hidden::ClusterNodeTimeout
    } else {
        Hidden::MinReplicasMaxLag
    }
}

/// How long an old primary may take to stop granting, as configured, in milliseconds; `None` if that cannot be read.
pub(crate) fn configured(ctx: &Context<'_>) -> Option<u64> {
    if ctx.is_cluster() {
        ctx.setting(c"cluster-node-timeout")
    } else {
        Some(ctx.setting(c"min-replicas-max-lag")? * 1_000)
    }
}

/// What the server was found to hide.
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

/// Records that the module cannot read something on which a promise rests, and logs that once.
pub(crate) fn note_hidden(ctx: &Context<'_>, what: Hidden) {
    let is_new = HIDDEN.get(ctx).borrow_mut().insert(what);
    if is_new {
        ctx.warn(&format!(
            "the server hides {} (its command is renamed or forbidden): {}",
            what.name(),
            what.assumed()
        ));
    }
}

/// The names of all that the server was found to hide, for `INFO lock`.
pub(crate) fn hidden(ctx: &Context<'_>) -> String {
    let hidden = HIDDEN.get(ctx).borrow();
    let names: Vec<_> = hidden.iter().map(|what| what.name()).collect();
    names.join(", ")
}
