//! Locks that came to their keys by COPY, RESTORE or a load. They enter the lease order, and some of
//! them are told of once more. A load brings a million: there is no hurry.
//!
//! One thing comes too late for a timer. A lock that was restored and then renamed is found under
//! its old name no more, and nobody tells the new one. What a callback replicates goes out ahead of
//! the command that it is called from: here just what is wanted, see [`retell_ahead`].

use std::cell::{Cell, LazyCell, RefCell};

use mortise_core::{Deque, Home, Homes, Map};

use crate::ffi::{Access, Context, MainThread, Swap, Value};
use crate::keys::effect;
use crate::keys::leases;
use crate::keys::name::Name;
use crate::keys::subscription;
use crate::time::{alarms, clock, role};

static ARRIVALS: MainThread<LazyCell<RefCell<Arrivals>>> =
    MainThread::new(LazyCell::new(RefCell::default));

/// A load has come to its end since the last look at marks.
static LOADED: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// The AOF is to be told of what came in the last full sync.
static RETELLS_SYNCED: MainThread<Cell<bool>> = MainThread::new(Cell::new(false));

/// The locks that came.
#[derive(Debug, Default)]
struct Arrivals {
    queue: Deque<(Home, Name)>,
    /// Those that are in the lease order, and are told of when the server's pause is over.
    held_back: Deque<(Home, Name)>,
    /// Those of them that came by RESTORE or in a full sync, so that replicas and the AOF may have to be told of their
    /// leases.
    restored: Map<(Home, Name), ()>,
    /// Where the databases are now: a million names stay as they are when two databases change places.
    homes: Homes,
}

impl Arrivals {
    /// The next one, and whether it was held back.
    fn next(&mut self, paused: bool) -> Option<((Home, Name), bool)> {
        if let Some(arrival) = self.queue.pop_front() {
            return Some((arrival, false));
        }
        if paused {
            return None;
        }
        let arrival = self.held_back.pop_front()?;
        Some((arrival, true))
    }

    fn is_restored(&self, db: i32, name: &[u8]) -> bool {
        let home = self.homes.home_of(db as u32);
        !self.restored.is_empty() && self.restored.contains_key(&(home, name.into()))
    }

    /// The restored lock at the key has been told of, or need not be.
    fn forget_restored(&mut self, home: Home, name: &Name) {
        self.restored.remove(&(home, name.clone()));
    }
}

/// None is waiting to be looked at.
pub(crate) fn none(ctx: &Context<'_>) -> bool {
    ARRIVALS.get(ctx).borrow().queue.is_empty()
}

/// How many are waiting to be looked at.
pub(crate) fn len(ctx: &Context<'_>) -> usize {
    ARRIVALS.get(ctx).borrow().queue.len()
}

/// How many have been looked at, and wait until writes are paused no more.
pub(crate) fn held_back(ctx: &Context<'_>) -> usize {
    ARRIVALS.get(ctx).borrow().held_back.len()
}

/// There are locks to look at now.
pub(crate) fn are_due(ctx: &Context<'_>) -> bool {
    let arrivals = ARRIVALS.get(ctx).borrow();
    !arrivals.queue.is_empty()
        || (!arrivals.held_back.is_empty() && !ctx.avoid_replication_traffic())
}

/// A load is complete.
pub(crate) fn on_loaded(ctx: &Context<'_>) {
    LOADED.get(ctx).set(true);
}

/// The event loop turns: after a load, does the AOF have to be told of what came?
pub(crate) fn look_at_load(ctx: &Context<'_>) {
    if LOADED.get(ctx).take() {
        RETELLS_SYNCED
            .get(ctx)
            .set(effect::aof_begins_with_sync(ctx));
    }
}

/// A lock came to a key by COPY or from a file.
pub(crate) fn mark(ctx: &Context<'_>, db: i32, name: &[u8]) {
    // It may be a copy of one that was restored just now.
    let restored = !ARRIVALS.get(ctx).borrow().restored.is_empty();
    push(ctx, db, name, restored);
}

/// A lock came to a key by RESTORE or in a full sync.
pub(crate) fn mark_restored(ctx: &Context<'_>, db: i32, name: &[u8]) {
    push(ctx, db, name, true);
}

fn push(ctx: &Context<'_>, db: i32, name: &[u8], restored: bool) {
    subscription::subscribe_once(ctx);
    let mut arrivals = ARRIVALS.get(ctx).borrow_mut();
    let home = arrivals.homes.home_of(db as u32);
    let name: Name = name.into();
    if restored {
        arrivals.restored.insert((home, name.clone()), ());
    }
    arrivals.queue.push_back((home, name));
    drop(arrivals);
    alarms::at_end_of_turn(ctx);
}

/// Two databases have changed places, and with them what came there.
pub(crate) fn swap(ctx: &Context<'_>, swap: Swap) {
    let Swap(one, other) = swap;
    let mut arrivals = ARRIVALS.get(ctx).borrow_mut();
    arrivals.homes.swap(one as u32, other as u32);
}

/// Locks that came by RESTORE or in a full sync are to be told of once more.
fn retells(ctx: &Context<'_>) -> bool {
    role::is_primary(ctx) || RETELLS_SYNCED.get(ctx).get()
}

/// Tells of a restored lock ahead of the command that takes it from its key: a RENAME then takes the leases along.
pub(crate) fn retell_ahead(ctx: &Context<'_>, db: i32, name: &[u8], value: &Value) {
    if !ARRIVALS.get(ctx).borrow().is_restored(db, name) || !retells(ctx) {
        return;
    }
    if ctx.avoid_replication_traffic() {
        return;
    }
    let selected = ctx.db();
    ctx.select(db);
    effect::retell(ctx, name, &value.lock, clock::now());
    ctx.select(selected);
}

/// What has become of the first lock that came.
#[derive(Debug)]
pub(crate) enum Entered {
    /// There is no lock to enter now.
    None,
    /// Its key is to be settled.
    Key { db: i32, name: Name },
    /// Its key has been settled before: the lock was held back until the server's pause was over.
    Again,
}

/// Enters the first lock that came into the lease order.
pub(crate) fn enter_next(ctx: &Context<'_>) -> Entered {
    let paused = ctx.avoid_replication_traffic();
    let mut arrivals = ARRIVALS.get(ctx).borrow_mut();
    let Some(((home, name), was_held_back)) = arrivals.next(paused) else {
        return Entered::None;
    };
    let db = arrivals.homes.db_of(home) as i32;
    let restored = arrivals.is_restored(db, &name);
    let retells = restored && retells(ctx);
    if retells && paused {
        arrivals.held_back.push_back((home, name.clone()));
    } else if restored {
        arrivals.forget_restored(home, &name);
    }
    drop(arrivals);
    enter(ctx, db, &name, retells && !paused);
    match was_held_back {
        true => Entered::Again,
        false => Entered::Key { db, name },
    }
}

/// Takes a lock into the lease order, and retells it if asked to.
fn enter(ctx: &Context<'_>, db: i32, name: &[u8], retells: bool) {
    ctx.select(db);
    let mut key = ctx.open_named(name, Access::Read);
    if let Some(value) = key.value() {
        let now = clock::now();
        leases::follow(ctx, db, name, value, now);
        if retells {
            effect::retell(ctx, name, &value.lock, now);
        }
    }
}
