//! `INFO lock`.

use crate::clock;
use crate::ffi::InfoWriter;
use crate::state::{self, STATE};

pub(crate) fn write(info: &InfoWriter) {
    STATE.with(|state| {
        let locks: usize = state.leases.borrow().iter().map(|order| order.len()).sum();
        let now = clock::now();
        let totals = &state.totals;
        for (field, value) in [
            ("locks", locks as u64),
            ("grants", totals.grants.get()),
            ("reentries", totals.reentries.get()),
            ("releases", totals.releases.get()),
            ("renewals", totals.renewals.get()),
            ("expiries", totals.expiries.get()),
            ("denied", totals.denied.get()),
            ("grace_left_ms", state.grace_until.get().millis_since(now)),
            ("last_token", state::last_token()),
        ] {
            info.number(field, value);
        }
    });
}
