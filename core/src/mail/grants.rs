//! Undelivered grants, found by their owner: LEAVE ends those of several keys at all of them, and undoing one may depend on another.

use std::rc::Rc;

use super::Mail;
use super::letter::{BoxId, Outcome, UndeliveredLetter, Undo, undelivered};
use crate::key::KeyId;
use crate::owner::OwnerRef;

impl Mail {
    /// The undelivered grants of several keys to `owner`, `key` among them. Their letters stay in the boxes.
    pub fn undelivered_of_several(
        &self,
        key: &KeyId,
        owner: OwnerRef<'_>,
    ) -> Vec<UndeliveredLetter> {
        let grants = self.grants_of(key, owner).into_iter();
        let letters = grants.filter_map(|(id, number)| {
            let found = self.boxes.get(&id)?;
            let stored = found.letters.get(&number)?;
            let letter = stored.letter.keys.is_some() && number > found.delivered;
            letter.then(|| stored.to_letter(&self.homes))
        });
        letters.filter_map(undelivered).collect()
    }

    /// A grant cannot be undone because another undelivered grant has changed its hold. Merges the two, so that undoing that one undoes
    /// both. True if it was found.
    pub fn extend_undo(&mut self, key: &KeyId, owner: OwnerRef<'_>, undo: &Undo) -> bool {
        for (id, number) in self.grants_of(key, owner) {
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

    /// The letters that granted `owner` the key.
    fn grants_of(&self, key: &KeyId, owner: OwnerRef<'_>) -> Vec<(BoxId, u64)> {
        if self.grants.is_empty() {
            return Vec::new();
        }
        let lock = (self.homes.home_of(key.db), Rc::clone(&key.name));
        let first = (owner.to_owner(), lock, BoxId(0), 0);
        let found = self.grants.range(&first..);
        let same = found.take_while(|(owner, lock, _, _)| *owner == first.0 && *lock == first.1);
        same.map(|(_, _, id, number)| (*id, *number)).collect()
    }
}
