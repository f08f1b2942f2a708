//! Crowds of holds that ended together, of locks and tables that are gone: dropped, and told of, a
//! few at a time. The sweep begins it.

use std::collections::VecDeque;

use mortise_core::{Remains, Stake};

use crate::ffi::Context;
use crate::keys::leases::Table;
use crate::state::{Name, ROOM_KEPT, State};

/// What is still to be dropped.
#[derive(Debug, Default)]
pub(crate) struct Crowds {
    locks: VecDeque<Crowd>,
    tables: Vec<Table>,
}

#[derive(Debug)]
struct Crowd {
    db: i32,
    name: Name,
    holds: Box<Remains>,
    /// Their leases were over, and nobody has been told yet.
    ended: bool,
}

/// Holds of the lock at the key whose leases are over.
pub(crate) fn keep_ended(state: &State, db: i32, name: &[u8], holds: Box<Remains>) {
    keep(state, db, name, holds, true);
}

/// Holds of the lock at the key that somebody else has ended.
pub(crate) fn keep_dropped(state: &State, name: &[u8], holds: Box<Remains>) {
    keep(state, 0, name, holds, false);
}

fn keep(state: &State, db: i32, name: &[u8], holds: Box<Remains>, ended: bool) {
    state.crowds.borrow_mut().locks.push_back(Crowd {
        db,
        name: name.into(),
        holds,
        ended,
    });
}

/// Tables of databases that were emptied.
pub(crate) fn keep_tables(state: &State, tables: impl IntoIterator<Item = Table>) {
    state.crowds.borrow_mut().tables.extend(tables);
}

/// Drops one hold, or some entries of a table. False if there is none.
pub(crate) fn step(ctx: &Context<'_>, state: &State) -> bool {
    let mut crowds = state.crowds.borrow_mut();
    let Some(first) = crowds.locks.front_mut() else {
        return crowds.drop_some_of_a_table();
    };
    let Some((_, stake)) = first.holds.pop() else {
        crowds.locks.pop_front();
        crowds.locks.shrink_to(ROOM_KEPT);
        return true;
    };
    if first.ended {
        let (db, name) = (first.db, first.name.clone());
        drop(crowds);
        count_ended(state, &stake);
        ctx.select(db);
        ctx.notify_named(c"lock.expire", &name);
    }
    true
}

impl Crowds {
    fn drop_some_of_a_table(&mut self) -> bool {
        let Some(table) = self.tables.last_mut() else {
            return false;
        };
        if !table.drop_some() {
            self.tables.pop();
        }
        true
    }

    /// There is nothing to drop.
    pub(crate) fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.tables.is_empty()
    }
}

/// The lease of a hold was over.
pub(crate) fn count_ended(state: &State, stake: &Stake) {
    state.totals.expiries.add_one();
    let held = stake.deadline.millis_since(stake.since);
    state.hold_times.borrow_mut().record(held);
}
