//! Which tasks wait somewhere among the readers of a crowd. No rules here.

use std::collections::BTreeSet;

use crate::owner::{Owner, OwnerRef};

/// The tasks that wait, each as the owner that [`OwnerRef::task_owner`] makes of it; `None` if it is no crowd.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(#[allow(clippy::box_collection)] Option<Box<BTreeSet<Owner>>>);

impl Waiting {
    /// It is a crowd: from now on its waiting tasks are known.
    pub(crate) fn begin(&mut self) {
        self.0.get_or_insert_default();
    }

    /// It is none any more.
    pub(crate) fn end(&mut self) {
        self.0 = None;
    }

    pub(crate) fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Nobody waits, as far as is known.
    pub(super) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|tasks| tasks.is_empty())
    }

    /// Of a crowd, those that wait.
    pub(crate) fn tasks(&self) -> Option<&BTreeSet<Owner>> {
        self.0.as_deref()
    }

    /// The task of `owner` reads and waits.
    pub(super) fn add(&mut self, owner: OwnerRef<'_>) {
        if let Some(tasks) = &mut self.0 {
            tasks.insert(owner.task_owner().to_owner());
        }
    }

    /// Removes one of them: for holds that no longer count.
    pub(super) fn pop(&mut self) {
        if let Some(tasks) = &mut self.0 {
            tasks.pop_last();
        }
    }

    /// The task of `owner` no longer reads or waits.
    pub(crate) fn remove(&mut self, owner: OwnerRef<'_>) {
        if let Some(tasks) = &mut self.0 {
            tasks.remove(&owner.task_owner().to_owner());
        }
    }
}
