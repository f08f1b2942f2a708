//! What is due when.

use std::collections::BTreeMap;

use crate::value::BootInstant;

/// When something is due; unique within its schedule.
pub(crate) type Due = (BootInstant, u64);

/// Things in the order in which they are due.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    due: BTreeMap<Due, T>,
    added: u64,
}

impl<T> Schedule<T> {
    pub(crate) const fn new() -> Schedule<T> {
        Schedule {
            due: BTreeMap::new(),
            added: 0,
        }
    }

    pub(crate) fn add(&mut self, when: BootInstant, what: T) -> Due {
        let due = (when, self.added);
        self.added += 1;
        self.due.insert(due, what);
        due
    }

    pub(crate) fn remove(&mut self, due: Due) -> Option<T> {
        self.due.remove(&due)
    }

    /// When the first is due.
    pub(crate) fn first(&self) -> Option<BootInstant> {
        self.due.first_key_value().map(|(due, _)| due.0)
    }

    pub(crate) fn pop_first(&mut self) -> Option<T> {
        self.due.pop_first().map(|(_, what)| what)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.due.values()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn due_entries_come_in_order_without_removed_ones() {
        let now = BootInstant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut schedule = Schedule::new();
        let last = schedule.add(at(3), 'c');
        schedule.add(at(1), 'a');
        schedule.add(at(1), 'b');
        schedule.add(at(9), 'd');
        assert_eq!(schedule.first(), Some(at(1)));
        assert_eq!(schedule.remove(last), Some('c'));
        let all: Vec<char> = std::iter::from_fn(|| schedule.pop_first()).collect();
        assert_eq!(all, ['a', 'b', 'd']);
    }
}
