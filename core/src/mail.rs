//! Waiting by mail: boxes, the requests whose answers go to them, and the letters that tell the answers.
//!
//! ```text
//!  request ──► expected ──► decided ──► letter, untold ──► told, and told again ──► forgotten
//!                 │                          │                    (AFTER names its number)
//!                 └─ the box goes ───────────┴─► the request leaves, an untold grant is given back
//! ```
//!
//! A queue knows nothing of this: it knows a waiter, and the code that answers waiters looks here whether
//! the answer is a letter. A letter's number is larger than that of every letter before it, in
//! whatever box, so what was told of a box is told by one number.

mod leaving;
mod letter;
mod mailbox;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub use letter::{
    BoxId, Leaving, Letter, NotYours, Numbered, Outcome, Posted, Told, Undo, Untold, age,
};

use letter::untold;
use mailbox::{Crowd, Leftover, Mailbox, Place, Stored};

use crate::homes::Homes;
use crate::key::{Db, KeyId};
use crate::map::Map;
use crate::owner::{Owner, OwnerRef};
use crate::queues::WaiterId;
use crate::types::{Instant, Mode};

/// Every box of a server.
#[derive(Debug, Default)]
pub struct Mail {
    names: Map<Rc<[u8]>, BoxId>,
    boxes: BTreeMap<BoxId, Mailbox>,
    /// Where the answer of a request goes. The box may have gone: then it is among `leaving`.
    requests: BTreeMap<WaiterId, BoxId>,
    /// Boxes that have gone, if not all that was in them has left.
    leaving: BTreeMap<BoxId, Leftover>,
    crowds: Vec<Crowd>,
    /// No grant of a box up to this one is given back, for this server has been no primary since.
    not_given_back: Option<BoxId>,
    letters: usize,
    /// Where the databases are now that have changed places while there were letters.
    homes: Homes,
    /// Letters by their owner and what they are about, to find those of one that leaves.
    by_owner: BTreeSet<(Owner, Place, BoxId, u64)>,
    /// Boxes by when they were asked for last,
    by_asked: BTreeSet<(Instant, BoxId)>,
    /// and by since when they have not forgotten what they were told.
    by_told: BTreeSet<(Instant, BoxId)>,
}

impl Mail {
    /// No box.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many boxes there are.
    pub fn boxes(&self) -> usize {
        self.boxes.len()
    }

    /// How many letters are not forgotten.
    pub fn letters(&self) -> usize {
        self.letters
    }

    /// How many requests wait by mail.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Boxes, letters and requests.
    pub fn len(&self) -> usize {
        self.boxes() + self.letters() + self.requests()
    }

    /// None of them.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Letters and requests of one box.
    pub fn box_len(&self, id: BoxId) -> usize {
        self.boxes.get(&id).map_or(0, Mailbox::len)
    }

    /// The box `name`, if it is there.
    ///
    /// # Errors
    /// [`NotYours`] if `user` did not make it.
    pub fn find(&self, name: &[u8], user: &[u8]) -> Result<Option<BoxId>, NotYours> {
        let Some(id) = self.names.get(name) else {
            return Ok(None);
        };
        let yours = self.boxes.get(id).is_some_and(|found| *found.user == *user);
        yours.then_some(Some(*id)).ok_or(NotYours)
    }

    /// Makes the box `name`, which is not there. `since` is a number that no box and no letter had before.
    pub fn make(&mut self, name: &[u8], user: &[u8], since: u64, now: Instant) -> BoxId {
        let (id, name) = (BoxId(since), Rc::<[u8]>::from(name));
        let made = Mailbox {
            name: Rc::clone(&name),
            user: user.into(),
            asked: now,
            told_since: None,
            told: 0,
            letters: BTreeMap::new(),
            requests: BTreeSet::new(),
        };
        self.names.insert(name, id);
        self.boxes.insert(id, made);
        self.by_asked.insert((now, id));
        id
    }

    /// The answer of `waiter` goes to the box from now on.
    pub fn expect(&mut self, waiter: WaiterId, id: BoxId) {
        self.forget_request(waiter);
        if let Some(found) = self.boxes.get_mut(&id) {
            found.requests.insert(waiter);
            self.requests.insert(waiter, id);
        }
    }

    /// `waiter` waits by mail.
    pub fn is_expected(&self, waiter: WaiterId) -> bool {
        self.requests.contains_key(&waiter)
    }

    /// The box to which the answer of `waiter` goes.
    pub fn box_of(&self, waiter: WaiterId) -> Option<BoxId> {
        self.requests.get(&waiter).copied()
    }

    /// The user whose box the answer of `waiter` goes to.
    pub fn user_of(&self, waiter: WaiterId) -> Option<&[u8]> {
        let found = self.boxes.get(self.requests.get(&waiter)?)?;
        Some(&found.user)
    }

    /// `waiter` has left its queue, and nobody is to be told. True if it waited by mail.
    pub fn forget_request(&mut self, waiter: WaiterId) -> bool {
        let Some(id) = self.requests.remove(&waiter) else {
            return false;
        };
        if let Some(found) = self.boxes.get_mut(&id) {
            found.requests.remove(&waiter);
        }
        true
    }

    /// `waiter` was answered. `number` is larger than every one before.
    pub fn post(&mut self, waiter: WaiterId, number: u64, letter: Letter) -> Posted {
        let Some(id) = self.requests.get(&waiter).copied() else {
            return Posted::NotByMail(letter);
        };
        self.forget_request(waiter);
        let Some(found) = self.boxes.get_mut(&id) else {
            return Posted::Returned(untold(letter));
        };
        let stored = Stored::new(letter, &self.homes);
        self.by_owner.insert(stored.entry(id, number));
        found.letters.insert(number, stored);
        self.letters += 1;
        Posted::In(id)
    }

    /// A reader asks for the letters of the box, and has those up to `after`.
    pub fn ask(&mut self, id: BoxId, after: Option<u64>, now: Instant) {
        let Some(found) = self.boxes.get_mut(&id) else {
            return;
        };
        self.by_asked.remove(&(found.asked, id));
        found.asked = now;
        self.by_asked.insert((now, id));
        let Some(after) = after else { return };
        let kept = found.letters.split_off(&after.saturating_add(1));
        let forgotten = std::mem::replace(&mut found.letters, kept);
        for (number, letter) in &forgotten {
            self.by_owner.remove(&letter.entry(id, *number));
        }
        let next = found.letters.first_key_value();
        let told = next.is_some_and(|(next, _)| *next <= found.told);
        if !forgotten.is_empty() {
            self.set_told_since(id, told.then_some(now));
            self.count_out(forgotten.len());
        }
    }

    /// The first `count` letters, with their numbers, oldest first. They are told from now on.
    pub fn tell(
        &mut self,
        id: BoxId,
        count: usize,
        now: Instant,
    ) -> impl ExactSizeIterator<Item = Numbered<'_>> {
        if let Some(found) = self.boxes.get_mut(&id) {
            let told = count.min(found.letters.len());
            let last = told
                .checked_sub(1)
                .and_then(|last| found.letters.keys().nth(last));
            let last = last.copied();
            found.told = found.told.max(last.unwrap_or(0));
            if last.is_some() && found.told_since.is_none() {
                self.set_told_since(id, Some(now));
            }
        }
        let letters = self.boxes.get(&id).map(|found| &found.letters);
        let told: Vec<_> = letters
            .into_iter()
            .flat_map(|letters| letters.iter().take(count))
            .map(|(number, stored)| Numbered {
                number: *number,
                db: stored.place.db(&self.homes),
                letter: &stored.letter,
            })
            .collect();
        told.into_iter()
    }

    /// Up to where the box was told, to be put back by [`Mail::untell`].
    pub fn told(&self, id: BoxId) -> Told {
        let found = self.boxes.get(&id);
        Told {
            number: found.map_or(0, |found| found.told),
            since: found.and_then(|found| found.told_since),
        }
    }

    /// What was told since `told` went to clients that never read it.
    pub fn untell(&mut self, id: BoxId, told: Told) {
        if let Some(found) = self.boxes.get_mut(&id) {
            found.told = told.number;
            let next = found.letters.first_key_value();
            let since = told
                .since
                .filter(|_| next.is_some_and(|(next, _)| *next <= told.number));
            self.set_told_since(id, since);
        }
    }

    /// The box has letters behind `after`.
    pub fn has_letters_after(&self, id: BoxId, after: Option<u64>) -> bool {
        let first = after.map_or(0, |after| after.saturating_add(1));
        let found = self.boxes.get(&id);
        found.is_some_and(|found| found.letters.range(first..).next().is_some())
    }

    /// Takes out the letters for requests of `owner` at the key. True if there was one.
    pub fn withdraw(&mut self, key: &KeyId, owner: OwnerRef<'_>) -> bool {
        let granted = self.letters_of(self.lock_at(key), owner);
        let others = self.letters_of(queue_at(key), owner);
        let letters = granted.into_iter().chain(others);
        letters.fold(false, |found, (id, number)| {
            self.take_out(id, number) || found
        })
    }

    /// A request is made again: the letter that refused or denied it is taken out if nobody was told.
    pub fn withdraw_refusal(&mut self, key: &KeyId, owner: OwnerRef<'_>, mode: Mode) {
        for (id, number) in self.letters_of(queue_at(key), owner) {
            let Some(found) = self.boxes.get(&id) else {
                continue;
            };
            let stored = found.letters.get(&number);
            let refusal = stored.is_some_and(|stored| stored.letter.mode == mode);
            if refusal && number > found.told {
                self.take_out(id, number);
            }
        }
    }

    /// A grant stands because its hold was touched by another one, of which nobody was told either: undoing that one is
    /// to undo both. True if it was found.
    pub fn hand_on(&mut self, key: &KeyId, owner: OwnerRef<'_>, undo: &Undo) -> bool {
        for (id, number) in self.letters_of(self.lock_at(key), owner) {
            let found = self.boxes.get_mut(&id);
            let found = found.map(|found| (found.told, &mut found.letters));
            let leaving = self.leaving.get_mut(&id);
            let leaving = leaving.map(|gone| (gone.told, &mut gone.letters));
            let Some((told, letters)) = found.or(leaving) else {
                continue;
            };
            let Some(stored) = letters.get_mut(&number).filter(|_| number > told) else {
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

    /// A box that nobody has asked for since `asked`, or that has not forgotten since `told` what it was told.
    pub fn overdue(&self, asked: Instant, told: Instant) -> Option<BoxId> {
        let first = |order: &BTreeSet<(Instant, BoxId)>, by: Instant| {
            order.first().filter(|(at, _)| *at <= by).map(|(_, id)| *id)
        };
        first(&self.by_asked, asked).or_else(|| first(&self.by_told, told))
    }

    /// When the box was asked for last that nobody has asked for longest.
    pub fn next_asked(&self) -> Option<Instant> {
        self.by_asked.first().map(|(asked, _)| *asked)
    }

    /// Two databases have changed places, and with them the locks of which letters tell.
    pub fn swap(&mut self, one: Db, other: Db) {
        if self.letters > 0 {
            self.homes.swap(one, other);
        }
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

    /// Of a box that is there: what leaves with one that has gone leaves by itself.
    fn take_out(&mut self, id: BoxId, number: u64) -> bool {
        let Some(found) = self.boxes.get_mut(&id) else {
            return false;
        };
        let letter = found.letters.remove(&number);
        let next = found.letters.first_key_value();
        let none_told = next.is_none_or(|(next, _)| *next > found.told);
        if let Some(letter) = letter {
            self.by_owner.remove(&letter.entry(id, number));
            self.count_out(1);
        }
        if none_told {
            self.set_told_since(id, None);
        }
        true
    }

    /// So many letters are there no more.
    fn count_out(&mut self, letters: usize) {
        self.letters -= letters;
        if self.letters == 0 {
            self.homes = Homes::default();
        }
    }

    fn set_told_since(&mut self, id: BoxId, told_since: Option<Instant>) {
        let Some(found) = self.boxes.get_mut(&id) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut found.told_since, told_since) {
            self.by_told.remove(&(before, id));
        }
        if let Some(told_since) = told_since {
            self.by_told.insert((told_since, id));
        }
    }
}

fn queue_at(key: &KeyId) -> Place {
    Place::Queue(key.db, Rc::clone(&key.name))
}
