//! Crowds of holds that ended together, of locks and tables that are gone: dropped, and replicated,
//! a few at a time. The sweep begins it.

use mortise_core::{KeyRef, LeaseTables, Remains, Stake};

use crate::ffi::Context;
use crate::keys::state::{self, Crowd, Crowds, Keys};
use crate::totals;

/// Holds of the lock at the key whose leases are over.
pub(crate) fn keep_ended(keys: &Keys, key: KeyRef<'_>, holds: Box<Remains>) {
    keep(keys, key, holds, true);
}

/// Holds of the lock at the key that the primary has ended.
pub(crate) fn keep_dropped(keys: &Keys, key: KeyRef<'_>, holds: Box<Remains>) {
    keep(keys, key, holds, false);
}

fn keep(keys: &Keys, key: KeyRef<'_>, holds: Box<Remains>, ended: bool) {
    keys.crowds.borrow_mut().locks.push_back(Crowd {
        key: key.to_id(),
        holds,
        ended,
    });
}

/// Tables of databases that were emptied.
pub(crate) fn keep_tables(keys: &Keys, tables: LeaseTables) {
    if !tables.is_empty() {
        keys.crowds.borrow_mut().tables.push(tables);
    }
}

/// Drops one hold, or some entries of a table. False if there is none.
pub(crate) fn step(ctx: &Context<'_>) -> bool {
    let mut crowds = state::get(ctx).crowds.borrow_mut();
    let Some(first) = crowds.locks.front_mut() else {
        return crowds.drop_some_of_a_table();
    };
    let Some((_, stake)) = first.holds.pop() else {
        crowds.locks.pop_front();
        return true;
    };
    if first.ended {
        let key = first.key.clone();
        drop(crowds);
        count_ended(ctx, &stake);
        ctx.select(key.db);
        ctx.notify_named(c"lock.expire", &key.name);
    }
    true
}

impl Crowds {
    fn drop_some_of_a_table(&mut self) -> bool {
        let Some(tables) = self.tables.last_mut() else {
            return false;
        };
        if !tables.drop_some() {
            self.tables.pop();
        }
        true
    }

    fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.tables.is_empty()
    }
}

/// There is nothing to drop.
pub(crate) fn is_empty(keys: &Keys) -> bool {
    keys.crowds.borrow().is_empty()
}

/// The lease of a hold was over.
pub(crate) fn count_ended(ctx: &Context<'_>, stake: &Stake) {
    totals::get(ctx).expiries.add_one();
    let held = stake.deadline.millis_since(stake.since);
    totals::hold_times(ctx).borrow_mut().record(held);
}
