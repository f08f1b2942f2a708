//! What a client renews, and when: one table for all its holds, so that a lock costs an entry and no task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, watch};

use crate::error::Loss;
use crate::sync::lock;
use crate::time::BootInstant;

/// What a keeper tends: a hold, of which this file need not know more.
pub(crate) trait Kept: Send + Sync {
    /// Does what is due, and puts off the rest ([`Keeper::put_off`]).
    fn tend(self: Arc<Self>);

    /// Ends: its client is closed, or its runtime is gone.
    fn end(&self, loss: Loss);
}

/// When something that is kept has to be tended, and its number.
pub(crate) type Due = (BootInstant, u64);

/// What is kept, and what has `Core::close` wait for it.
type Entry = (Arc<dyn Kept>, watch::Receiver<()>);

#[derive(Default)]
pub(crate) struct Keeper {
    table: Mutex<Table>,
    /// Something is due before [`tend`](Keeper::tend) said that it would be, or the keeper is gone.
    pub(crate) is_early: Arc<Notify>,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<Due, Entry>,
    last_number: u64,
    /// When it is to be tended next; `None` while there is no entry.
    wakes_at: Option<BootInstant>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.is_early.notify_one();
    }
}

impl Keeper {
    /// Tends `kept` from now on, first at this moment. Returns when it is due.
    pub(crate) fn keep(
        &self,
        kept: Arc<dyn Kept>,
        at: BootInstant,
        pending: watch::Receiver<()>,
    ) -> Due {
        let mut table = lock(&self.table);
        table.last_number += 1;
        let due = (at, table.last_number);
        self.insert(&mut table, due, (kept, pending))
    }

    /// Tends what is due then at this moment instead, or never again. Returns when it is due.
    pub(crate) fn put_off(&self, due: Due, at: Option<BootInstant>) -> Option<Due> {
        let (before, number) = due;
        if at == Some(before) {
            return Some(due);
        }
        let mut table = lock(&self.table);
        let entry = table.entries.remove(&due)?;
        let Some(at) = at else {
            // It may be the last that refers to the table.
            drop(table);
            return None;
        };
        Some(self.insert(&mut table, (at, number), entry))
    }

    fn insert(&self, table: &mut Table, due: Due, entry: Entry) -> Due {
        table.entries.insert(due, entry);
        if table.wakes_at.is_none_or(|wakes_at| due.0 < wakes_at) {
            table.wakes_at = Some(due.0);
            self.is_early.notify_one();
        }
        due
    }

    /// All that is due by this moment.
    fn due(&self, by: BootInstant) -> Vec<Arc<dyn Kept>> {
        let table = lock(&self.table);
        let due = table.entries.range(..=(by, u64::MAX));
        due.map(|(_, (kept, _))| kept.clone()).collect()
    }

    /// Tends what is due, and returns when the next is.
    pub(crate) fn tend(&self) -> Option<BootInstant> {
        self.due(BootInstant::now())
            .into_iter()
            .for_each(Kept::tend);
        let mut table = lock(&self.table);
        table.wakes_at = table.entries.first_key_value().map(|((at, _), _)| *at);
        table.wakes_at
    }

    /// Ends all that is kept.
    pub(crate) fn end_all(&self, loss: Loss) {
        let all = self.due(BootInstant::LATEST);
        all.iter().for_each(|kept| kept.end(loss));
    }
}
