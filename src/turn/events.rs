//! What happens to the server as a whole. Nothing here writes, replicates or wakes: it marks.
//!
//! From Redis 7.2 and Valkey 8 on each key that goes is offered to every listener of any event, so a server without locks
//! gets only those listeners that it cannot do without.

use crate::ffi::Context;
use crate::keys::effect;
use crate::keys::evictions;
use crate::keys::leases;
use crate::state::{STATE, State, Swap};
use crate::time::clock;
use crate::time::grace::MARGIN;
use crate::time::lateness::Promotion;
use crate::turn::arrivals;
use crate::turn::dismissals;
use crate::turn::relook::{self, Scope};
use crate::turn::slice::measured;
use crate::turn::timers;
use crate::waiting::{mail, undelivered};

/// Something happened to the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// It became a primary or a replica.
    Role { primary: bool },
    /// The database, or all of them, is about to be emptied.
    Flush { db: Option<u32> },
    /// Two databases have changed places.
    SwapDb(Swap),
    /// All data is about to come anew, from the primary.
    Syncing,
    /// A load is complete.
    Loaded,
    /// The periodic tick.
    Cron,
    /// A child was forked, to save, to rewrite or to sync a replica.
    Forked,
    /// A setting has changed.
    Config,
    /// The event loop has slept. Told of for as long as clients are watched.
    Slept,
    /// A client is being closed. The same.
    Closed { client: u64 },
}

/// The module has been registered.
pub(crate) fn on_load(ctx: &Context<'_>) {
    STATE.with(|state| {
        state.primary.set(!ctx.is_replica());
        let now = clock::now();
        state.grace.on_start(now, state.grace_ms.get());
        state.post.on_start(now);
        warn_of_short_grace(ctx, state);
        timers::start(ctx, state);
    });
}

pub(crate) fn on_event(ctx: &Context<'_>, event: Event) {
    STATE.with(|state| match event {
        Event::Slept => undelivered::on_slept(state),
        Event::Closed { client } => undelivered::on_closed(ctx, state, client),
        _ => measured(state, || on_change(ctx, state, event)),
    });
}

fn on_change(ctx: &Context<'_>, state: &State, event: Event) {
    match event {
        Event::Slept | Event::Closed { .. } => {}
        Event::Role { primary } => on_role(ctx, state, primary),
        Event::Flush { db } => {
            leases::clear(state, db);
            state.queues.borrow_mut().forget_all_holders(db);
            relook::begin(state, db.map_or(Scope::All, Scope::Database));
        }
        Event::SwapDb(swap) => {
            leases::swap(state, swap);
            arrivals::swap(state, swap);
            undelivered::swap(state, swap);
            mail::swap(state, swap);
            for db in [swap.0, swap.1].map(|db| db as u32) {
                state.queues.borrow_mut().forget_all_holders(Some(db));
                relook::begin(state, Scope::Database(db));
            }
        }
        Event::Syncing => state.lateness.on_sync(),
        Event::Loaded => {
            state.listening.set(true);
            state.tokens.borrow_mut().resume(clock::wall());
            state.grace.on_tick(clock::now());
            state.loaded.set(true);
            if state.tokens.borrow().last() > 0 {
                subscribe_once(ctx, state);
            }
            relook::begin(state, Scope::All);
            timers::at_end_of_turn(state);
        }
        Event::Cron => {
            let now = clock::now();
            timers::back_up(ctx, state, now);
            effect::look_for_listeners(ctx, state, now);
            if state.grace_ms.get() > 0 {
                state.grace.read_lag(ctx, now);
                if state.primary.get() {
                    state.grace.watch(ctx, now);
                }
            }
        }
        Event::Forked => {
            state.listening.set(true);
            state.grace.heartbeats.on_fork();
            // A replica has an AOF of its own, and its replicas get nothing but what its primary sends.
            if ctx.has_aof() {
                state.token_clock_due.set(true);
                timers::at_end_of_turn(state);
            }
        }
        Event::Config => {
            state.grace.heartbeats.on_settings();
            evictions::look_at_policy(ctx, state);
        }
    }
}

/// A lock comes to this server, or a wait, or word of the token clock: from now on it has to know of more.
pub(crate) fn subscribe_once(ctx: &Context<'_>, state: &State) {
    if state.subscribed.replace(true) {
        return;
    }
    if !ctx.subscribe_for_locks() {
        ctx.warn("the server refuses a subscription to its events: FLUSHALL and SWAPDB will leave waiters behind");
    }
    // Callbacks must not ask the server for settings.
    state.policy_unknown.set(true);
    timers::at_end_of_turn(state);
}

fn on_role(ctx: &Context<'_>, state: &State, primary: bool) {
    let was = state.primary.replace(primary);
    state.listening.set(true);
    if primary && !was {
        state.tokens.borrow_mut().resume(clock::wall());
        let (grace, max_lease) = (state.grace_ms.get(), state.max_lease.get());
        let now = clock::now();
        state.grace.on_promotion(now, grace, max_lease);
        state.lateness.on_promotion(&Promotion {
            now,
            grace,
            max_lease,
            safe: grace >= max_lease.saturating_add(state.grace.known_lag() + MARGIN),
            cluster: ctx.is_cluster(),
        });
        state.warned_of.take();
        warn_of_short_grace(ctx, state);
    } else if !primary {
        dismissals::send_all_away(state);
        undelivered::forget_all(state);
        mail::close_all(state);
    }
}

/// Says once of a pair of settings that the grace is too short for the leases.
pub(crate) fn warn_of_short_grace(ctx: &Context<'_>, state: &State) {
    let (grace, max_lease) = (state.grace_ms.get(), state.max_lease.get());
    let known = state.warned_of.replace((grace, max_lease)) == (grace, max_lease);
    if known || grace == 0 || max_lease <= grace {
        return;
    }
    ctx.warn(&format!(
        "lock.grace {grace} is less than lock.max-lease {max_lease}: a lock that was lost may \
         still be held when the grace ends"
    ));
}
