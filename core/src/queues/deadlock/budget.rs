//! How far a search goes before it gives up: half a millisecond altogether.

/// How many tasks are reached at most from the wait on.
pub(crate) const MOST_TASKS: usize = 1_000;
/// How many steps are taken for that, also to places in queues, readers and known tasks that lead nowhere. Enough to
/// reach so many tasks, whatever leads to them, and to meet each once more.
const MOST_STEPS: usize = 6 * MOST_TASKS;
/// How many tasks that the asking one blocks are found at most. To find what a task holds takes a search.
pub(super) const MOST_BLOCKED: usize = 200;
/// How many steps are taken for that, and how many for a cycle among those.
const MOST_STEPS_BACK: usize = 2_000;
const MOST_STEPS_AMONG: usize = 3_000;
/// Checking whether the task of an owner waits costs as much as this many steps,
pub(super) const FIND_TASK: usize = 4;
/// checking whether it is among the readers of a lock, this many,
pub(super) const FIND_READER: usize = 8;
/// and checking whether a request waits only because it stands behind one for several keys, this many.
pub(super) const FIND_PLACE: usize = 16;

/// What one search may still spend.
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

    /// One more than the owners for which there are steps to check whether their tasks wait.
    pub(super) fn tasks_to_find(&self) -> usize {
        self.most.saturating_sub(self.steps) / FIND_TASK + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_after_one_step_more_than_it_has() {
        let mut budget = Budget::of(10);
        assert_eq!((budget.steps(), budget.is_spent()), (0, false));
        budget.step(4);
        budget.step(6);
        assert_eq!((budget.steps(), budget.is_spent()), (10, false));
        budget.step(0);
        assert!(!budget.is_spent());
        budget.step(2);
        budget.step(0);
        assert_eq!((budget.steps(), budget.is_spent()), (12, true));
        let mut budget = Budget::of(10);
        budget.spend();
        budget.step(1);
        assert_eq!((budget.steps(), budget.is_spent()), (1, true));
    }

    #[test]
    fn one_more_task_is_found_than_there_are_steps_for() {
        let mut budget = Budget::of(10 * FIND_TASK);
        assert_eq!(budget.tasks_to_find(), 11);
        budget.step(9 * FIND_TASK);
        assert_eq!(budget.tasks_to_find(), 2);
        budget.step(3 * FIND_TASK);
        assert_eq!(budget.tasks_to_find(), 1);
    }
}
