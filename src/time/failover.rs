//! Checks whether the settings in force keep mutual exclusion over a failover.
//!
//! Every hold that replication lost must have run out before a promoted server grants anything,
//! and by then the old primary must have stopped. `INFO lock` answers, and names what is missing. It speaks of the servers alone:
//! clients that confirm each hold are safe without a grace after a promotion, but no server knows whether all of them do.

use std::cell::Cell;

use mortise_core::{Instant, Lease};

use crate::config;
use crate::ffi::{Context, MainThread};
use crate::time;
use crate::time::lag::{self, Hidden, MARGIN};

/// The settings that a warning was last considered for: the two graces and the longest lease.
static WARNED_OF: MainThread<Cell<Option<[u64; 3]>>> = MainThread::new(Cell::new(None));

/// What the promise lacks; empty if it holds. `granted`: when the last lease ends that was granted, as far as it may still be held.
/// `awaited`: the longest lease that a waiter asks for.
pub(crate) fn missing(
    ctx: &Context<'_>,
    granted: Instant,
    awaited: Option<Lease>,
    now: Instant,
) -> Vec<String> {
    let mut missing = Vec::new();
    let max_lease = config::MAX_LEASE.get();
    let lag = lag::configured(ctx);
    match lag {
        None => missing.push(unreadable(lag::setting(ctx))),
        Some(lag) => missing.extend(missing_graces(max_lease + lag + MARGIN)),
    }
    let longest = granted.millis_since(now);
    if longest > max_lease {
        missing.push(format!(
            "a lease may run for {longest} ms, granted when lock.max-lease was longer than {max_lease}"
        ));
    }
    // A waiter's lease is granted as it was requested, whatever the setting is by then.
    let awaited = awaited.map_or(0, Lease::as_millis);
    if awaited > max_lease {
        missing.push(format!(
            "a waiter asked for a lease of {awaited} ms when lock.max-lease was longer than {max_lease}"
        ));
    }
    if !ctx.is_cluster() && time::is_primary(ctx) {
        let [replicas] = ctx.server_info(c"replication", [c"connected_slaves"]);
        let replicas = replicas.unwrap_or(0);
        match ctx.setting(c"min-replicas-to-write") {
            None => missing.push(unreadable(Hidden::MinReplicasToWrite)),
            Some(0) => missing.push("min-replicas-to-write is 0".into()),
            Some(least) if least < replicas => missing.push(format!(
                "min-replicas-to-write {least} is less than the {replicas} replicas attached"
            )),
            Some(_) if lag == Some(0) => missing.push("min-replicas-max-lag is 0".into()),
            Some(_) => {}
        }
    }
    missing
}

fn unreadable(setting: Hidden) -> String {
    format!("{} cannot be read", setting.name())
}

/// Which grace is too short, where `needed` milliseconds have to pass after a promotion.
fn missing_graces(needed: u64) -> Vec<String> {
    let (grace, max_lease) = (config::GRACE.get(), config::MAX_LEASE.get());
    let Some(promotion_grace) = config::own_promotion_grace() else {
        let too_short = format!("lock.grace {grace} is less than {needed}");
        return (grace < needed).then_some(too_short).into_iter().collect();
    };
    let mut missing = Vec::new();
    if promotion_grace < needed {
        missing.push(format!(
            "lock.promotion-grace {promotion_grace} is less than {needed}, which is safe only if all clients confirm their \
             holds, and the server cannot know that"
        ));
    }
    if grace < max_lease {
        missing.push(format!(
            "lock.grace {grace} is less than lock.max-lease {max_lease}"
        ));
    }
    missing
}

/// Warns once for each choice of settings that a grace is too short for the leases.
pub(crate) fn warn_of_short_grace(ctx: &Context<'_>) {
    let max_lease = config::MAX_LEASE.get();
    let graces = [
        ("lock.grace", config::GRACE.get()),
        (
            "lock.promotion-grace",
            config::own_promotion_grace().unwrap_or(0),
        ),
    ];
    let settings = Some([graces[0].1, graces[1].1, max_lease]);
    if WARNED_OF.get(ctx).replace(settings) == settings {
        return;
    }
    for (name, grace) in graces {
        if 0 < grace && grace < max_lease {
            ctx.warn(&format!(
                "{name} {grace} is less than lock.max-lease {max_lease}: a lost lock may still be held \
                 when the grace ends. Set lock.max-lease to the longest lease in use, and {name} to that plus \
                 min-replicas-max-lag plus 3 s"
            ));
        }
    }
}
