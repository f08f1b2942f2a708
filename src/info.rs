//! `INFO lock`.

use crate::ffi::{Context, InfoWriter};
use crate::keys::leases::Table;
use crate::state::{self, STATE, State};
use crate::time::clock;
use crate::time::failover;

pub(crate) fn write(info: &InfoWriter) {
    STATE.with(|state| {
        let now = clock::now();
        let tables = state.leases.borrow();
        let totals = &state.totals;
        let [boxes, letters, requests] = state.post.counts();
        for (field, value) in [
            ("locks", tables.iter().map(Table::locks).sum()),
            ("holders", tables.iter().map(Table::holders).sum()),
            ("waiters", state.queues.borrow().len() as u64),
            ("waiters_by_mail", requests),
            ("boxes", boxes),
            ("letters", letters),
            ("left", state.left.borrow().len() as u64),
            ("blocked_clients", state.waiters.borrow().len() as u64),
            ("held_back", held_back(state)),
            ("marked", marked(state)),
            ("total_grants", totals.grants.get()),
            ("total_reentries", totals.reentries.get()),
            ("total_handoffs", totals.handoffs.get()),
            ("total_releases", totals.releases.get()),
            ("total_renewals", totals.renewals.get()),
            ("total_expiries", totals.expiries.get()),
            ("total_timeouts", totals.timeouts.get()),
            ("total_deadlocks", totals.deadlocks.get()),
            ("total_denied", totals.denied.get()),
            ("total_evictions", totals.evictions.get()),
            ("longest_stretch_us", state.longest_stretch.get()),
            ("grace_left_ms", state.grace.left(now)),
            (
                "replicas_late",
                u64::from(state.grace.heartbeats.are_late(now)),
            ),
            ("suspect_left_ms", state.lateness.suspect_ms(now)),
            ("last_token", state::last_token()),
        ] {
            info.number(field, value);
        }
        for (what, times) in [
            ("wait", state.wait_times.borrow()),
            ("hold", state.hold_times.borrow()),
        ] {
            for percent in [50, 95, 99] {
                info.number(&format!("{what}_ms_p{percent}"), times.percentile(percent));
            }
            info.number(&format!("{what}_ms_max"), times.max());
        }
        let missing = Context::with_detached(|ctx| failover::missing(ctx, state, now));
        info.number("failover_safe", u64::from(missing.is_empty()));
        info.text("failover_missing", &missing.join("; "));
    });
}

/// Keys that are still to be looked at.
fn marked(state: &State) -> u64 {
    (state.dirty.borrow().marked() + state.arrivals.borrow().len()) as u64
}

/// How many keys are looked at again when the server accepts writes.
fn held_back(state: &State) -> u64 {
    (state.dirty.borrow().held_back() + state.arrivals.borrow().held_back()) as u64
}
