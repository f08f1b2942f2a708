//! Takes letters out of their boxes before a client deletes them, because their owner has left the key or repeats its request.

use std::rc::Rc;

use super::Mail;
use super::letter::{BoxId, Letter, Outcome, Undo, Withdrawn, undelivered};
use super::mailbox::Place;
use crate::key::{KeyId, KeyList};
use crate::owner::OwnerRef;
use crate::types::Mode;

impl Mail {
    /// Takes out the letters for requests of `owner` at the key.
    pub fn withdraw(&mut self, key: &KeyId, owner: OwnerRef<'_>) -> Withdrawn {
        let granted = self.letters_of(self.lock_at(key), owner);
        let others = self.letters_of(queue_at(key), owner);
        let mut withdrawn = Withdrawn::default();
        for (id, number) in granted.into_iter().chain(others) {
            let delivered = self.boxes.get(&id).map(|found| found.delivered);
            let Some(letter) = self.take_out(id, number) else {
                continue;
            };
            withdrawn.any = true;
            if letter.keys.is_some() && delivered < Some(number) {
                withdrawn.grants.extend(undelivered(letter));
            }
        }
        withdrawn
    }

    /// A request for the key, or for `keys`, is repeated: takes out the letter that refused or denied it, unless that was
    /// delivered.
    pub fn withdraw_refusal(
        &mut self,
        key: &KeyId,
        keys: Option<&KeyList>,
        owner: OwnerRef<'_>,
        mode: Mode,
    ) {
        for (id, number) in self.letters_of(queue_at(key), owner) {
            let Some(found) = self.boxes.get(&id) else {
                continue;
            };
            let stored = found.letters.get(&number);
            let refusal = stored.is_some_and(|stored| {
                let same_keys = match (&stored.letter.keys, keys) {
                    (None, None) => true,
                    (Some(its), Some(keys)) => its.is_same(keys),
                    _ => false,
                };
                same_keys && stored.letter.mode == mode
            });
            if refusal && number > found.delivered {
                self.take_out(id, number);
            }
        }
    }

    /// A grant cannot be undone because another undelivered grant has changed its hold. Merges the two, so that undoing that one undoes
    /// both. True if it was found.
    pub fn extend_undo(&mut self, key: &KeyId, owner: OwnerRef<'_>, undo: &Undo) -> bool {
        for (id, number) in self.letters_of(self.lock_at(key), owner) {
            let found = self.boxes.get_mut(&id);
            let found = found.map(|found| (found.delivered, &mut found.letters));
            let leaving = self.leaving.get_mut(&id);
            let leaving = leaving.map(|gone| (gone.delivered, &mut gone.letters));
            let Some((delivered, letters)) = found.or(leaving) else {
                continue;
            };
            let Some(stored) = letters.get_mut(&number).filter(|_| number > delivered) else {
                continue;
            };
            if let Outcome::Granted { undo: later, .. } = &mut stored.letter.outcome
                && later
                    .before
                    .as_ref()
                    .is_some_and(|before| before.touched == undo.granted)
            {
                later.before.clone_from(&undo.before);
                return true;
            }
        }
        false
    }

    fn lock_at(&self, key: &KeyId) -> Place {
        Place::Lock(self.homes.home_of(key.db), Rc::clone(&key.name))
    }

    fn letters_of(&self, place: Place, owner: OwnerRef<'_>) -> Vec<(BoxId, u64)> {
        if self.by_owner.is_empty() {
            return Vec::new();
        }
        let first = (owner.to_owner(), place, BoxId(0), 0);
        let found = self.by_owner.range(&first..);
        let same = found.take_while(|(owner, place, _, _)| *owner == first.0 && *place == first.1);
        same.map(|(_, _, id, number)| (*id, *number)).collect()
    }

    /// Only of an open box. A closed one loses its letters anyway.
    fn take_out(&mut self, id: BoxId, number: u64) -> Option<Letter> {
        let found = self.boxes.get_mut(&id)?;
        let letter = found.letters.remove(&number);
        let next = found.letters.first_key_value();
        let none_delivered = next.is_none_or(|(next, _)| *next > found.delivered);
        if none_delivered {
            self.set_delivered_since(id, None);
        }
        let letter = letter?;
        for entry in letter.entries(id, number) {
            self.by_owner.remove(&entry);
        }
        let letter = letter.into_letter(&self.homes);
        self.count_out(1);
        Some(letter)
    }
}

fn queue_at(key: &KeyId) -> Place {
    Place::Queue(key.db, Rc::clone(&key.name))
}
