//! What `INFO lock` counts.

use std::cell::{Cell, LazyCell, RefCell};

use mortise_core::{Grant, Histogram};

use crate::ffi::{Context, MainThread};

static TOTALS: MainThread<Totals> = MainThread::new(Totals::new());

pub(crate) fn get(ctx: &Context<'_>) -> &'static Totals {
    TOTALS.get(ctx)
}

/// How long waiters waited for their grant, in milliseconds.
pub(crate) fn wait_times(ctx: &Context<'_>) -> &'static RefCell<Histogram> {
    &get(ctx).wait_times
}

/// How long holds lasted, from the first grant to the last release, the pass or the end of the lease.
pub(crate) fn hold_times(ctx: &Context<'_>) -> &'static RefCell<Histogram> {
    &get(ctx).hold_times
}

/// How often each event happened since the module was loaded.
pub(crate) struct Totals {
    pub(crate) grants: Total,
    pub(crate) reentries: Total,
    pub(crate) handoffs: Total,
    pub(crate) releases: Total,
    pub(crate) renewals: Total,
    pub(crate) passes: Total,
    pub(crate) revocations: Total,
    pub(crate) expiries: Total,
    pub(crate) timeouts: Total,
    pub(crate) deadlocks: Total,
    pub(crate) denied: Total,
    wait_times: LazyCell<RefCell<Histogram>>,
    hold_times: LazyCell<RefCell<Histogram>>,
}

impl Totals {
    const fn new() -> Self {
        Self {
            grants: Total::new(),
            reentries: Total::new(),
            handoffs: Total::new(),
            releases: Total::new(),
            renewals: Total::new(),
            passes: Total::new(),
            revocations: Total::new(),
            expiries: Total::new(),
            timeouts: Total::new(),
            deadlocks: Total::new(),
            denied: Total::new(),
            wait_times: LazyCell::new(RefCell::default),
            hold_times: LazyCell::new(RefCell::default),
        }
    }

    /// Counts a grant, whether it came at once or out of the queue.
    pub(crate) fn count_grant(&self, grant: Grant) {
        match grant {
            Grant::Reentry(_) => self.reentries.add_one(),
            Grant::New(_) | Grant::Upgrade(_) => self.grants.add_one(),
        }
    }
}

/// A number that only grows.
pub(crate) struct Total(Cell<u64>);

impl Total {
    const fn new() -> Self {
        Self(Cell::new(0))
    }

    pub(crate) fn add_one(&self) {
        self.0.set(self.0.get() + 1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}
