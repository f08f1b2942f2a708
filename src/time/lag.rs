//! How long an old primary may take to stop granting.

use crate::ffi::Context;

/// What a server needs, beyond the lag, to see that a replica is gone: it counts whole seconds, once
/// a second. In milliseconds.
pub(crate) const MARGIN: u64 = 3_000;
/// The lag assumed where the setting cannot be read: the server's default, in milliseconds.
pub(crate) const DEFAULT_LAG: u64 = 10_000;

/// How long an old primary may take to stop granting, as configured, in milliseconds.
pub(crate) fn configured(ctx: &Context<'_>) -> Option<u64> {
    if ctx.is_cluster() {
        ctx.setting(c"cluster-node-timeout")
    } else {
        Some(ctx.setting(c"min-replicas-max-lag")? * 1_000)
    }
}
