//! Do the settings in force keep mutual exclusion over a failover?
//!
//! Every hold that replication lost must have run out before a promoted server grants anything,
//! and by then the old primary must have stopped. `INFO lock` answers, and names what is missing.

use mortise_core::{Instant, Lease};

use crate::ffi::Context;
use crate::state::State;
use crate::time::grace::{self, MARGIN};

/// What the promise lacks; empty if it holds.
pub(crate) fn missing(ctx: &Context<'_>, state: &State, now: Instant) -> Vec<String> {
    let mut missing = Vec::new();
    let Some(lag) = grace::lag(ctx) else {
        return vec!["the server's settings cannot be read".into()];
    };
    let (grace, max_lease) = (state.grace_ms.get(), state.max_lease.get());
    let needed = max_lease + lag + MARGIN;
    if grace < needed {
        missing.push(format!("lock.grace {grace} is less than {needed}"));
    }
    let held = state.leases.borrow().iter().any(|table| table.locks() > 0);
    let last = if held {
        state.last_deadline.get()
    } else {
        state.last_stray_deadline.get()
    };
    let longest = last.millis_since(now);
    if longest > max_lease {
        missing.push(format!(
            "a lease may run for {longest} ms, granted when lock.max-lease was longer than {max_lease}"
        ));
    }
    // What was asked for is granted, whatever may be asked for by then.
    let awaited = state.queues.borrow().longest_lease();
    let awaited = awaited.map_or(0, Lease::as_millis);
    if awaited > max_lease {
        missing.push(format!(
            "a waiter asked for a lease of {awaited} ms when lock.max-lease was longer than {max_lease}"
        ));
    }
    if !ctx.is_cluster() && state.primary.get() {
        let [replicas] = ctx.server_info(c"replication", [c"connected_slaves"]);
        let replicas = replicas.unwrap_or(0);
        match ctx.setting(c"min-replicas-to-write") {
            None => missing.push("min-replicas-to-write cannot be read".into()),
            Some(0) => missing.push("min-replicas-to-write is 0".into()),
            Some(least) if least < replicas => missing.push(format!(
                "min-replicas-to-write {least} is less than the {replicas} replicas attached"
            )),
            Some(_) if lag == 0 => missing.push("min-replicas-max-lag is 0".into()),
            Some(_) => {}
        }
    }
    missing
}
