//! How far a search goes before it gives up.

/// How many tasks are reached at most from the wait on,
pub(super) const MOST_TASKS: usize = 1_000;
/// and how many that the asking one blocks. One of these costs twice as much: what a task holds has to be looked for.
pub(super) const MOST_BLOCKED: usize = 250;
/// How many looks are made at most, also at those who lead nowhere: at places in lines, at readers, at tasks
/// that are known already.
const MOST_LOOKS: usize = 4_000;
/// So many looks cost as much as to find out whether the task of an owner waits,
pub(super) const FIND_TASK: usize = 4;
/// and whether it is among the readers of a lock.
pub(super) const FIND_READER: usize = 8;

/// What one search has spent.
#[derive(Debug, Default)]
pub(super) struct Budget {
    looks: usize,
    spent: bool,
}

impl Budget {
    pub(super) fn look(&mut self, times: usize) {
        self.looks += times;
        self.spent |= self.looks > MOST_LOOKS;
    }

    /// Nothing is left.
    pub(super) fn spend(&mut self) {
        self.spent = true;
    }

    pub(super) fn is_spent(&self) -> bool {
        self.spent
    }

    pub(super) fn looks(&self) -> usize {
        self.looks
    }

    /// For how many owners it can still be found out whether their tasks wait, and one more.
    pub(super) fn tasks_to_find(&self) -> usize {
        MOST_LOOKS.saturating_sub(self.looks) / FIND_TASK + 1
    }
}
