//! What happens to the server as a whole. Nothing here writes, replicates or wakes: it marks.

use mortise_core::KeyRef;

use crate::config;
use crate::error::Error;
use crate::ffi::{Context, Event, Value};
use crate::keys::{arrivals, effect, leases, tokens};
use crate::time::{self, alarms, clock, failover};
use crate::waiting::{self, undelivered};
use crate::work::queue::Scope;
use crate::work::queue::Work;
use crate::work::slice::measured;
use crate::work::{queue, refuse};

/// The module has been registered.
pub(crate) fn on_load(ctx: &Context<'_>) {
    time::set_primary(ctx, !ctx.is_replica());
    let now = clock::now();
    time::grace(ctx).on_start(now, config::GRACE.get(), config::promotion_grace());
    time::log_grace_begin(ctx, now, "the server has started");
    waiting::boxes(ctx).on_start(now);
    failover::warn_of_short_grace(ctx);
    queue::push(ctx, Work::WarnOfEvictions);
    alarms::sweep_in(ctx, alarms::SWEEP_EVERY);
}

pub(crate) fn on_event(ctx: &Context<'_>, event: Event) {
    measured(ctx, || on_change(ctx, event));
}

fn on_change(ctx: &Context<'_>, event: Event) {
    match event {
        Event::Role { primary } => on_role(ctx, primary),
        Event::Flush { db } => {
            leases::clear(ctx, db);
            waiting::queues(ctx).borrow_mut().forget_all_holders(db);
            queue::scan(ctx, db.map_or(Scope::All, Scope::Database));
        }
        Event::SwapDb(one, other) => {
            leases::tables(ctx).borrow_mut().swap(one, other);
            queue::homes(ctx).borrow_mut().swap(one, other);
            for db in [one, other] {
                let mut queues = waiting::queues(ctx).borrow_mut();
                queues.forget_all_holders(Some(db));
                drop(queues);
                queue::scan(ctx, Scope::Database(db));
            }
        }
        Event::Syncing => time::lateness(ctx).on_sync(),
        Event::Loaded => {
            effect::may_have_receivers(ctx);
            tokens::clock(ctx).borrow_mut().resume(clock::wall());
            time::grace(ctx).on_tick(clock::now());
            // Waiters need nothing: the flush before the load has queued their keys, and each lock that comes queues its key.
            alarms::at_end_of_turn(ctx);
        }
        Event::Cron => {
            let now = clock::now();
            alarms::back_up(ctx, now);
            effect::check_receivers(ctx, now);
            if config::promotion_grace() > 0 {
                time::grace(ctx).read_lag(ctx, now);
            }
        }
        Event::Forked => {
            effect::may_have_receivers(ctx);
            time::grace(ctx).heartbeats.on_fork();
            // A replica has an AOF of its own, and its replicas get nothing but what its primary sends.
            // Without a token it stays empty, so that the file loads without the module.
            if ctx.has_aof() && tokens::last(ctx) > 0 {
                queue::push(ctx, Work::SendTokenClock);
            }
        }
        Event::Config => {
            time::grace(ctx).heartbeats.on_settings();
            queue::push(ctx, Work::WarnOfEvictions);
        }
    }
}

fn on_role(ctx: &Context<'_>, primary: bool) {
    let was = time::set_primary(ctx, primary);
    effect::may_have_receivers(ctx);
    if primary && !was {
        tokens::clock(ctx).borrow_mut().resume(clock::wall());
        let (grace, max_lease) = (config::promotion_grace(), config::MAX_LEASE.get());
        let now = clock::now();
        time::grace(ctx).on_promotion(now, grace, max_lease);
        time::log_grace_begin(ctx, now, "the server has become a primary");
        let lag = time::grace(ctx).known_lag().least;
        time::lateness(ctx).on_promotion(ctx, lag, now);
    } else if !primary {
        refuse::all(ctx, Scope::All, Error::NO_PRIMARY);
        undelivered::forget_all(ctx);
        waiting::boxes(ctx).close_all(ctx);
    }
}

/// The key lost its lock, or the lock its key (RENAME, MOVE).
pub(crate) fn on_unlinked(ctx: &Context<'_>, key: KeyRef<'_>, value: &Value) {
    arrivals::replicate_again_ahead(ctx, key, value);
    leases::forget(ctx, key, value);
    let any_unheld = || {
        let queues = waiting::queues(ctx).borrow();
        queues.waiting_keys().unheld_after(None).is_some()
    };
    if !value.lock.is_free() && any_unheld() {
        // RENAME and MOVE report only the key that a lock leaves: it may be at an awaited key now that was free.
        queue::scan(ctx, Scope::Unheld);
    }
    if waiting::is_awaited(ctx, key) {
        waiting::queues(ctx).borrow_mut().forget_holders(key);
        queue::settle(ctx, key);
    }
}
