//! What is due when.

use std::collections::BTreeMap;

use crate::value::BootInstant;

/// When something is due; unique.
pub(crate) type Slot = (BootInstant, u64);

/// Things in the order in which they are due.
#[derive(Debug)]
pub(crate) struct Agenda<T> {
    due: BTreeMap<Slot, T>,
    number: u64,
    /// When somebody looks next, if he does: not for what has been removed since, and comes again later.
    pub(crate) looks: Option<BootInstant>,
}

impl<T> Agenda<T> {
    pub(crate) const fn new() -> Agenda<T> {
        Agenda {
            due: BTreeMap::new(),
            number: 0,
            looks: None,
        }
    }

    pub(crate) fn add(&mut self, when: BootInstant, what: T) -> Slot {
        let slot = (when, self.number);
        self.number += 1;
        self.due.insert(slot, what);
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        self.due.remove(&slot)
    }

    /// Takes out what is due first, if it is due by now, or says when that is; nothing, where there is nothing.
    pub(crate) fn next(&mut self, now: BootInstant) -> Option<Result<T, BootInstant>> {
        let first = self.due.first_entry();
        self.looks = first.as_ref().map(|first| first.key().0);
        first.map(|first| match first.key().0 <= now {
            true => Ok(first.remove()),
            false => Err(first.key().0),
        })
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
    fn what_is_due_comes_in_order_and_what_was_taken_out_does_not() {
        let now = BootInstant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut agenda = Agenda::new();
        let last = agenda.add(at(3), 'c');
        agenda.add(at(1), 'a');
        agenda.add(at(1), 'b');
        agenda.add(at(9), 'd');
        assert_eq!(agenda.next(now), Some(Err(at(1))));
        assert_eq!(agenda.remove(last), Some('c'));
        let due: Vec<char> = std::iter::from_fn(|| agenda.next(at(5))?.ok()).collect();
        assert_eq!(due, ['a', 'b']);
        assert_eq!(agenda.values().collect::<Vec<_>>(), [&'d']);
    }
}
