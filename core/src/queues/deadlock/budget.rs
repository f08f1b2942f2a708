//! How far a search goes before it gives up: what costs half a millisecond altogether.

/// How many tasks are reached at most from the wait on.
pub(super) const MOST_TASKS: usize = 1_000;
/// How many steps are taken for that, also to places in queues, readers and known tasks that lead nowhere. Enough to
/// reach so many tasks, whatever leads to them, and to meet each once more.
const MOST_STEPS: usize = 6 * MOST_TASKS;
/// How many tasks are found at most that the asking one blocks. What a task holds has to be
/// searched for.
pub(super) const MOST_BLOCKED: usize = 200;
/// How many steps are taken for that, and how many for a cycle among those.
const MOST_STEPS_BACK: usize = 2_000;
const MOST_STEPS_AMONG: usize = 3_000;
/// To find out whether the task of an owner waits costs as much as so many steps,
pub(super) const FIND_TASK: usize = 4;
/// and whether it is among the readers of a lock.
pub(super) const FIND_READER: usize = 8;

/// What one search has spent.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    steps: usize,
    spent: bool,
}

impl Budget {
    /// Of a search from the wait on.
    pub(super) const fn forward() -> Self {
        Self::of(MOST_STEPS)
    }

    /// Of a search for tasks that the asking one blocks.
    pub(super) const fn back() -> Self {
        Self::of(MOST_STEPS_BACK)
    }

    /// Of a search among these.
    pub(super) const fn among() -> Self {
        Self::of(MOST_STEPS_AMONG)
    }

    const fn of(most: usize) -> Self {
        Self {
            most,
            steps: 0,
            spent: false,
        }
    }

    pub(super) fn step(&mut self, times: usize) {
        self.steps += times;
        self.spent |= self.steps > self.most;
    }

    /// Nothing is left.
    pub(super) fn spend(&mut self) {
        self.spent = true;
    }

    pub(super) fn is_spent(&self) -> bool {
        self.spent
    }

    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// For how many more owners there are steps to find out whether their tasks wait, and one more.
    pub(super) fn tasks_to_find(&self) -> usize {
        self.most.saturating_sub(self.steps) / FIND_TASK + 1
    }
}
