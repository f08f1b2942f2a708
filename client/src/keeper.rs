//! The task that renews the holds of a client and notices when they end: one for all of them, so that a lock costs an entry in a
//! table and no task.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{Notify, watch};

use crate::runtime::Runtime;
use crate::sync::lock;
use crate::time::BootInstant;

/// What a keeper tends: a hold, of which this file need not know more.
pub(crate) trait Kept: Send + Sync {
    /// Does what is due, and puts off the rest ([`Keeper::put_off`]).
    fn tend(self: Arc<Self>);

    /// The runtime is gone, and with it the keeper.
    fn abandon(&self);

    /// The client is closed.
    fn close(&self);
}

/// When something that is kept has to be tended, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    at: BootInstant,
    number: u64,
}

struct Entry {
    kept: Arc<dyn Kept>,
    /// Has `Core::close` wait for it.
    _pending: watch::Receiver<()>,
}

pub(crate) struct Keeper {
    table: Mutex<Table>,
    /// Something is due before the task wakes up, or the keeper is gone.
    is_early: Arc<Notify>,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<Due, Entry>,
    last_number: u64,
    /// When the task wakes up; `None` while it waits for an entry.
    wakes_at: Option<BootInstant>,
    /// The runtime is gone.
    is_over: bool,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.is_early.notify_one();
    }
}

impl Keeper {
    /// Starts the task, which ends with the keeper.
    pub(crate) fn new(runtime: &Runtime) -> Arc<Keeper> {
        let is_early = Arc::new(Notify::new());
        let keeper = Arc::new(Keeper {
            table: Mutex::default(),
            is_early: is_early.clone(),
        });
        let task = Task(Arc::downgrade(&keeper));
        runtime.spawn(task.run(is_early, runtime.clone()));
        keeper
    }

    /// Tends `kept` from now on, first at this moment. `None` if the runtime is gone.
    pub(crate) fn keep(
        &self,
        kept: Arc<dyn Kept>,
        at: BootInstant,
        pending: watch::Receiver<()>,
    ) -> Option<Due> {
        let mut table = lock(&self.table);
        if table.is_over {
            return None;
        }
        table.last_number += 1;
        let number = table.last_number;
        let entry = Entry {
            kept,
            _pending: pending,
        };
        Some(self.insert(&mut table, Due { at, number }, entry))
    }

    /// Tends what is due then at this moment instead, or never again. Returns when it is due.
    pub(crate) fn put_off(&self, due: Due, at: Option<BootInstant>) -> Option<Due> {
        let Due { at: before, number } = due;
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
        Some(self.insert(&mut table, Due { at, number }, entry))
    }

    fn insert(&self, table: &mut Table, due: Due, entry: Entry) -> Due {
        table.entries.insert(due, entry);
        if table.wakes_at.is_none_or(|wakes_at| due.at < wakes_at) {
            table.wakes_at = Some(due.at);
            self.is_early.notify_one();
        }
        due
    }

    /// All that is kept.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Kept>> {
        let table = lock(&self.table);
        table.entries.values().map(|it| it.kept.clone()).collect()
    }

    /// Tends what is due, and returns when the next is.
    fn tend(&self) -> Option<BootInstant> {
        let now = BootInstant::now();
        let due: Vec<_> = {
            let table = lock(&self.table);
            let due = table.entries.iter().take_while(|(due, _)| due.at <= now);
            due.map(|(_, it)| it.kept.clone()).collect()
        };
        due.into_iter().for_each(Kept::tend);
        let mut table = lock(&self.table);
        table.wakes_at = table.entries.first_key_value().map(|(due, _)| due.at);
        table.wakes_at
    }

    fn abandon(&self) {
        lock(&self.table).is_over = true;
        for kept in self.all() {
            kept.abandon();
        }
    }
}

/// The task of a keeper. If it ends with its runtime, nobody renews a hold any more.
struct Task(Weak<Keeper>);

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(keeper) = self.0.upgrade() {
            keeper.abandon();
        }
    }
}

impl Task {
    async fn run(self, is_early: Arc<Notify>, runtime: Runtime) {
        loop {
            let Some(next) = self.0.upgrade().map(|keeper| keeper.tend()) else {
                return;
            };
            match next {
                Some(next) => {
                    let early = is_early.notified();
                    runtime.limited(next.next_sleep(), early).await;
                }
                None => is_early.notified().await,
            }
        }
    }
}
