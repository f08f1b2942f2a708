//! What `INFO lock` counts.

use std::cell::{Cell, LazyCell, RefCell};

use mortise_core::{Grant, Histogram};

use crate::ffi::{Context, MainThread};

/// Something that is counted since the module was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Total {
    Grants,
    Reentries,
    Handoffs,
    Releases,
    Renewals,
    Passes,
    Revocations,
    Expiries,
    Timeouts,
    Deadlocks,
    Denied,
}

/// The name of each total in INFO, in the order of the enum.
const NAMES: [&str; Total::Denied as usize + 1] = [
    "total_grants",
    "total_reentries",
    "total_handoffs",
    "total_releases",
    "total_renewals",
    "total_passes",
    "total_revocations",
    "total_expiries",
    "total_timeouts",
    "total_deadlocks",
    "total_denied",
];

static TOTALS: MainThread<[Cell<u64>; NAMES.len()]> =
    MainThread::new([const { Cell::new(0) }; NAMES.len()]);
static WAIT_TIMES: MainThread<LazyCell<RefCell<Histogram>>> =
    MainThread::new(LazyCell::new(RefCell::default));
static HOLD_TIMES: MainThread<LazyCell<RefCell<Histogram>>> =
    MainThread::new(LazyCell::new(RefCell::default));

/// Raises a total by one.
pub(crate) fn add(ctx: &Context<'_>, total: Total) {
    let count = &TOTALS.get(ctx)[total as usize];
    count.set(count.get() + 1);
}

/// Counts a grant, whether it came at once or out of the queue.
pub(crate) fn add_grant(ctx: &Context<'_>, grant: Grant) {
    match grant {
        Grant::Reentry(_) => add(ctx, Total::Reentries),
        Grant::New(_) | Grant::Upgrade(_) => add(ctx, Total::Grants),
    }
}

/// Each total, with its name in INFO.
pub(crate) fn all(ctx: &Context<'_>) -> impl Iterator<Item = (&'static str, u64)> {
    let counts = TOTALS.get(ctx).iter().map(Cell::get);
    NAMES.into_iter().zip(counts)
}

/// How long waiters waited for their grant, in milliseconds.
pub(crate) fn wait_times(ctx: &Context<'_>) -> &'static RefCell<Histogram> {
    WAIT_TIMES.get(ctx)
}

/// How long holds lasted, from the first grant to the last release, the pass or the end of the lease.
pub(crate) fn hold_times(ctx: &Context<'_>) -> &'static RefCell<Histogram> {
    HOLD_TIMES.get(ctx)
}
