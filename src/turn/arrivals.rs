//! Locks that came to their keys by COPY, RESTORE or a load. They enter the lease order, and some of
//! them are told of once more. A load brings a million: there is no hurry.
//!
//! One thing comes too late for a timer. A lock that was restored and then renamed is found under
//! its old name no more, and nobody tells the new one. What a callback replicates goes out ahead of
//! the command that it is called from: here just what is wanted, see [`retell_ahead`].

use std::collections::{HashSet, VecDeque};

use crate::ffi::{Access, Context};
use crate::keys::effect;
use crate::keys::leases;
use crate::keys::value::Value;
use crate::state::{Name, ROOM_KEPT, STATE, State, Swap};
use crate::time::clock;
use crate::turn::dirty::{self, DirtyKey};
use crate::turn::events;
use crate::turn::timers;

/// The locks that came.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    queue: VecDeque<(Home, Name)>,
    /// Those that are in the lease order, and are told of when the server's pause is over.
    held_back: VecDeque<(Home, Name)>,
    /// Those of them that came by RESTORE or in a full sync, so that replicas and the AOF may have to be told of their
    /// leases.
    restored: HashSet<(Home, Name)>,
    homes: Homes,
}

/// A database wherever SWAPDB has put it since: a million names stay as they are when two databases change places.
type Home = i32;

/// Where the databases are now that have been swapped.
#[derive(Debug, Default)]
struct Homes(Vec<i32>);

impl Homes {
    fn home_of(&self, db: i32) -> Home {
        let found = self.0.iter().position(|now| *now == db);
        found.map_or(db, |home| home as Home)
    }

    fn db_of(&self, home: Home) -> i32 {
        let found = usize::try_from(home).ok().and_then(|home| self.0.get(home));
        found.map_or(home, |now| *now)
    }

    fn swap(&mut self, swap: Swap) {
        let last = swap.0.max(swap.1);
        let known = i32::try_from(self.0.len()).unwrap_or(i32::MAX);
        self.0.extend(known..=last);
        for now in &mut self.0 {
            *now = swap.of(*now);
        }
    }
}

impl Arrivals {
    /// None is waiting to be looked at.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many are waiting to be looked at.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// How many have been looked at, and wait until writes are paused no more.
    pub(crate) fn held_back(&self) -> usize {
        self.held_back.len()
    }

    /// The next one, and whether it was held back.
    fn next(&mut self, paused: bool) -> Option<((Home, Name), bool)> {
        if let Some(arrival) = self.queue.pop_front() {
            if self.queue.is_empty() {
                self.queue.shrink_to(ROOM_KEPT);
            }
            return Some((arrival, false));
        }
        if paused {
            return None;
        }
        let arrival = self.held_back.pop_front()?;
        if self.held_back.is_empty() {
            self.held_back.shrink_to(ROOM_KEPT);
        }
        Some((arrival, true))
    }

    fn is_restored(&self, db: i32, name: &[u8]) -> bool {
        let home = self.homes.home_of(db);
        !self.restored.is_empty() && self.restored.contains(&(home, name.into()))
    }

    /// The restored lock at the key has been told of, or need not be.
    fn forget_restored(&mut self, home: Home, name: &Name) {
        self.restored.remove(&(home, name.clone()));
        if self.restored.is_empty() {
            self.restored.shrink_to(ROOM_KEPT);
        }
    }
}

/// A lock came to a key by COPY or from a file.
pub(crate) fn mark(db: i32, name: &[u8]) {
    // It may be a copy of one that was restored just now.
    let restored = STATE.with(|state| !state.arrivals.borrow().restored.is_empty());
    push(db, name, restored);
}

/// A lock came to a key by RESTORE or in a full sync.
pub(crate) fn mark_restored(db: i32, name: &[u8]) {
    push(db, name, true);
}

fn push(db: i32, name: &[u8], restored: bool) {
    STATE.with(|state| {
        Context::with_detached(|ctx| events::subscribe_once(ctx, state));
        let mut arrivals = state.arrivals.borrow_mut();
        let home = arrivals.homes.home_of(db);
        let name: Name = name.into();
        if restored {
            arrivals.restored.insert((home, name.clone()));
        }
        arrivals.queue.push_back((home, name));
        drop(arrivals);
        timers::at_end_of_turn(state);
    });
}

/// Two databases have changed places, and with them what came there.
pub(crate) fn swap(state: &State, swap: Swap) {
    state.arrivals.borrow_mut().homes.swap(swap);
}

/// Locks that came by RESTORE or in a full sync are to be told of once more.
fn retells(state: &State) -> bool {
    state.primary.get() || state.retells_synced.get()
}

/// Tells of a restored lock ahead of the command that takes it from its key: a RENAME then takes the leases along.
pub(crate) fn retell_ahead(state: &State, db: i32, name: &[u8], value: &Value) {
    if !state.arrivals.borrow().is_restored(db, name) || !retells(state) {
        return;
    }
    Context::with_detached(|ctx| {
        if ctx.avoid_replication_traffic() {
            return;
        }
        let selected = ctx.db();
        ctx.select(db);
        effect::retell(ctx, name, &value.lock, clock::now());
        ctx.select(selected);
    });
}

/// There are locks to look at now.
pub(crate) fn are_due(ctx: &Context<'_>, state: &State) -> bool {
    let arrivals = state.arrivals.borrow();
    !arrivals.is_empty() || (arrivals.held_back() > 0 && !ctx.avoid_replication_traffic())
}

/// Looks at the first lock that came. False if there is none to look at now.
pub(crate) fn look_at_next(ctx: &Context<'_>, state: &State) -> bool {
    let paused = ctx.avoid_replication_traffic();
    let mut arrivals = state.arrivals.borrow_mut();
    let Some(((home, name), was_held_back)) = arrivals.next(paused) else {
        return false;
    };
    let db = arrivals.homes.db_of(home);
    let restored = arrivals.is_restored(db, &name);
    let retells = restored && retells(state);
    if retells && paused {
        arrivals.held_back.push_back((home, name.clone()));
    } else if restored {
        arrivals.forget_restored(home, &name);
    }
    drop(arrivals);
    enter(ctx, db, &name, retells && !paused);
    if !was_held_back {
        let key = DirtyKey {
            db,
            name,
            recheck_holders: true,
        };
        dirty::look_at(ctx, state, key);
    }
    true
}

/// Takes a lock into the lease order, and retells it if asked to.
fn enter(ctx: &Context<'_>, db: i32, name: &[u8], retells: bool) {
    ctx.select(db);
    let mut key = ctx.open_named(name, Access::Read);
    if let Some(value) = key.value() {
        let now = clock::now();
        leases::follow(ctx.state(), db, name, value, now);
        if retells {
            effect::retell(ctx, name, &value.lock, now);
        }
    }
}
