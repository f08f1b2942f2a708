//! How long an old primary may take to stop granting.

use crate::config;
use crate::ffi::Context;
use crate::time::hidden::{self, Hidden};

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
        hidden::note(ctx, setting(ctx));
        let left = config::promotion_grace(ctx).saturating_sub(config::MAX_LEASE.get(ctx) + MARGIN);
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

/// The setting that says it.
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
