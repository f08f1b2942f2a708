//! What happens to the server as a whole. Nothing here writes, replicates or wakes: it marks.

use crate::clock;
use crate::effect;
use crate::ffi::Context;
use crate::settle;
use crate::state::{STATE, State};

/// Something happened to the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// It became a primary or a replica.
    Role { primary: bool },
    /// The database, or all of them, is about to be emptied.
    Flush { db: Option<u32> },
    /// Two databases have changed places.
    SwapDb(i32, i32),
    /// A load is complete.
    Loaded,
    /// The periodic tick.
    Cron,
    /// A child was forked, to save, to rewrite or to sync a replica.
    Forked,
    /// Slots begin to move.
    SlotMigration,
}

/// The module has been registered.
pub(crate) fn on_load(ctx: &Context<'_>) {
    STATE.with(|state| {
        state.primary.set(!ctx.is_replica());
        state.start_grace();
        settle::start_sweeping(ctx, state);
    });
}

pub(crate) fn on_event(ctx: &Context<'_>, event: Event) {
    STATE.with(|state| match event {
        Event::Role { primary } => on_role(state, primary),
        Event::Flush { db } => on_flush(state, db),
        Event::SwapDb(one, other) => on_swapdb(state, one, other),
        Event::Loaded => {
            state.listening.set(true);
            state.tokens.borrow_mut().resume(clock::wall());
            settle::arm_marks(ctx, state);
        }
        Event::Cron => {
            let now = clock::now();
            settle::back_up_sweeping(ctx, state, now);
            effect::look_for_listeners(ctx, state, now);
        }
        Event::Forked => {
            state.listening.set(true);
            if ctx.has_aof() && state.primary.get() {
                state.token_clock_due.set(true);
                settle::arm_marks(ctx, state);
            }
        }
        Event::SlotMigration => state.listening.set(true),
    });
}

fn on_role(state: &State, primary: bool) {
    let was = state.primary.replace(primary);
    state.listening.set(true);
    if primary && !was {
        state.tokens.borrow_mut().resume(clock::wall());
        state.start_grace();
    }
}

fn on_flush(state: &State, db: Option<u32>) {
    let mut leases = state.leases.borrow_mut();
    match db {
        Some(db) => {
            if let Some(order) = leases.get_mut(db as usize) {
                order.clear();
            }
        }
        None => leases.clear(),
    }
}

fn on_swapdb(state: &State, one: i32, other: i32) {
    let (Ok(low), Ok(high)) = (
        usize::try_from(one.min(other)),
        usize::try_from(one.max(other)),
    ) else {
        return;
    };
    state.leases_of(one.max(other), |_| {});
    state.leases.borrow_mut().swap(low, high);
    for (db, _) in state.marks.borrow_mut().iter_mut() {
        if *db == one {
            *db = other;
        } else if *db == other {
            *db = one;
        }
    }
}
