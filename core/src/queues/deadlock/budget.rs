//! How far a search goes before it gives up: what costs half a millisecond altogether.

/// How many tasks are reached at most from the wait on.
pub(super) const MOST_TASKS: usize = 1_000;
/// How many looks are made for that, also at those who lead nowhere: at places in lines, at readers, at tasks that are
/// known already. Enough to reach so many tasks, whatever leads to them, and to come upon each once more.
const MOST_LOOKS: usize = 6 * MOST_TASKS;
/// How many tasks are found at most that the asking one blocks. What a task holds has to be looked for.
pub(super) const MOST_BLOCKED: usize = 200;
/// How many looks are made for that, and how many for a cycle among those.
const MOST_LOOKS_BACK: usize = 2_000;
const MOST_LOOKS_AMONG: usize = 3_000;
/// To find out whether the task of an owner waits costs as much as so many steps,
pub(super) const FIND_TASK: usize = 4;
/// and whether it is among the readers of a lock.
pub(super) const FIND_READER: usize = 8;

/// What one search has spent.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    looks: usize,
    spent: bool,
}

impl Budget {
    /// Of a search from the wait on.
    pub(super) const fn forward() -> Self {
        Self::of(MOST_LOOKS)
    }

    /// Of a search for tasks that the asking one blocks.
    pub(super) const fn back() -> Self {
        Self::of(MOST_LOOKS_BACK)
    }

    /// Of a search among these.
    pub(super) const fn among() -> Self {
        Self::of(MOST_LOOKS_AMONG)
    }

    const fn of(most: usize) -> Self {
        Self {
            most,
            looks: 0,
            spent: false,
        }
    }

    pub(super) fn look(&mut self, times: usize) {
        self.looks += times;
        self.spent |= self.looks > self.most;
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
        self.most.saturating_sub(self.looks) / FIND_TASK + 1
    }
}
