//! Waiting by mail: boxes, the requests whose answers go to them, and the letters with the answers.
//!
//! ```text
//!  request ──► expected ──► decided ──► letter, undelivered ──► delivered, again and again ──► forgotten
//!                 │                          │                         (AFTER names its number)
//!                 └─ the box is closed ──────┴─► the request leaves, an undelivered grant is given back
//! ```
//!
//! A queue knows only the waiter. The code that answers waiters checks here whether the answer is a letter. A letter has a
//! larger number than every letter before it, in whatever box, so one number shows how much of a box was delivered.

mod leaving;
mod letter;
mod mailbox;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub use letter::{BoxId, BoxLimits, Leaving, Letter, NotYours, Numbered, Outcome, Posted, age};

use mailbox::{Crowd, Leftover, Mailbox, Stored};

use crate::homes::Homes;
use crate::key::Db;
use crate::queues::WaiterId;
use crate::types::Instant;

/// Every box of a server.
#[derive(Debug, Default)]
pub struct Mail {
    names: BTreeMap<Rc<[u8]>, BoxId>,
    boxes: BTreeMap<BoxId, Mailbox>,
    /// The box for the answer of each request. A closed box is among `leaving`.
    requests: BTreeMap<WaiterId, BoxId>,
    /// Requests for several keys: how many they ask for beyond one.
    more_keys: BTreeMap<WaiterId, usize>,
    more_keys_of_all: usize,
    /// Closed boxes that are not empty yet.
    leaving: BTreeMap<BoxId, Leftover>,
    crowds: Vec<Crowd>,
    letters: usize,
    /// Databases that SWAPDB has moved while there were letters.
    homes: Homes,
    /// Boxes by when LOCK.MAIL last named them.
    by_asked: BTreeSet<(Instant, BoxId)>,
    /// Boxes whose newest LOCK.MAIL lost its connection while it waited, by when.
    by_lost: BTreeSet<(Instant, BoxId)>,
    /// Boxes by when they first had a delivered letter that is not deleted yet.
    by_delivered: BTreeSet<(Instant, BoxId)>,
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

    /// Boxes, letters and requests. A request for several keys counts once for each.
    pub fn len(&self) -> usize {
        self.boxes() + self.letters() + self.requests() + self.more_keys_of_all
    }

    /// There are no boxes, letters and requests.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Letters and requests of one box. A request for several keys counts once for each.
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

    /// Creates the box `name`, which does not exist. No box and no letter had the number `since` before.
    pub fn make(&mut self, name: &[u8], user: &[u8], since: u64, now: Instant) -> BoxId {
        let (id, name) = (BoxId(since), Rc::<[u8]>::from(name));
        let made = Mailbox {
            name: Rc::clone(&name),
            user: user.into(),
            asked: now,
            lost: None,
            delivered_since: None,
            delivered: 0,
            letters: BTreeMap::new(),
            requests: BTreeSet::new(),
            more_keys: 0,
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

    /// The same for a waiter that asks for so many keys.
    pub fn expect_several(&mut self, waiter: WaiterId, id: BoxId, keys: usize) {
        self.expect(waiter, id);
        let more = keys.saturating_sub(1);
        if let Some(found) = self.boxes.get_mut(&id) {
            found.more_keys += more;
            self.more_keys.insert(waiter, more);
            self.more_keys_of_all += more;
        }
    }

    fn forget_more_keys(&mut self, waiter: WaiterId) -> usize {
        let more = self.more_keys.remove(&waiter).unwrap_or(0);
        self.more_keys_of_all -= more;
        more
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

    /// `waiter` has left its queue without an answer. True if it waited by mail.
    pub fn forget_request(&mut self, waiter: WaiterId) -> bool {
        let Some(id) = self.requests.remove(&waiter) else {
            return false;
        };
        let more = self.forget_more_keys(waiter);
        if let Some(found) = self.boxes.get_mut(&id) {
            found.requests.remove(&waiter);
            found.more_keys -= more;
        }
        true
    }

    /// `waiter` was answered. `number` is larger than every one before.
    pub fn post(&mut self, waiter: WaiterId, number: u64, letter: Letter) -> Posted {
        let Some(id) = self.requests.get(&waiter).copied() else {
            return Posted::NotByMail;
        };
        self.forget_request(waiter);
        let Some(found) = self.boxes.get_mut(&id) else {
            return Posted::Returned;
        };
        let stored = Stored::new(letter, &self.homes);
        found.letters.insert(number, stored);
        self.letters += 1;
        Posted::In(id)
    }

    /// A LOCK.MAIL asks for the letters of the box, and has got those up to `after`. Returns the requests of those that were never delivered
    /// nevertheless.
    pub fn ask(&mut self, id: BoxId, after: Option<u64>, now: Instant) -> Vec<WaiterId> {
        let Some(found) = self.boxes.get_mut(&id) else {
            return Vec::new();
        };
        self.by_asked.remove(&(found.asked, id));
        found.asked = now;
        self.by_asked.insert((now, id));
        if let Some(lost) = found.lost.take() {
            self.by_lost.remove(&(lost, id));
        }
        let Some(after) = after else {
            return Vec::new();
        };
        let kept = found.letters.split_off(&after.saturating_add(1));
        let forgotten = std::mem::replace(&mut found.letters, kept);
        let undelivered = forgotten.range(found.delivered.saturating_add(1)..);
        let undelivered = undelivered
            .map(|(_, stored)| stored.letter.waiter)
            .collect();
        let next = found.letters.first_key_value();
        let delivered = next.is_some_and(|(next, _)| *next <= found.delivered);
        if !forgotten.is_empty() {
            self.set_delivered_since(id, delivered.then_some(now));
            self.count_out(forgotten.len());
        }
        undelivered
    }

    /// The connection over which the box's newest LOCK.MAIL waited was closed at `now`, or was not, if `None`. The next LOCK.MAIL
    /// forgets it.
    pub fn set_lost(&mut self, id: BoxId, lost: Option<Instant>) {
        let Some(found) = self.boxes.get_mut(&id) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut found.lost, lost) {
            self.by_lost.remove(&(before, id));
        }
        if let Some(lost) = lost {
            self.by_lost.insert((lost, id));
        }
    }

    /// The first `count` letters, with their numbers, oldest first. They count as delivered from now on.
    pub fn deliver(
        &mut self,
        id: BoxId,
        count: usize,
        now: Instant,
    ) -> impl ExactSizeIterator<Item = Numbered<'_>> {
        if let Some(found) = self.boxes.get_mut(&id) {
            let delivered = count.min(found.letters.len());
            let last = delivered
                .checked_sub(1)
                .and_then(|last| found.letters.keys().nth(last));
            let last = last.copied();
            found.delivered = found.delivered.max(last.unwrap_or(0));
            if last.is_some() && found.delivered_since.is_none() {
                self.set_delivered_since(id, Some(now));
            }
        }
        let letters = self.boxes.get(&id).map(|found| &found.letters);
        let delivered: Vec<_> = letters
            .into_iter()
            .flat_map(|letters| letters.iter().take(count))
            .map(|(number, stored)| Numbered {
                number: *number,
                db: stored.place.db(&self.homes),
                letter: &stored.letter,
            })
            .collect();
        delivered.into_iter()
    }

    /// The box has letters after `after`.
    pub fn has_letters_after(&self, id: BoxId, after: Option<u64>) -> bool {
        let first = after.map_or(0, |after| after.saturating_add(1));
        let found = self.boxes.get(&id);
        found.is_some_and(|found| found.letters.range(first..).next().is_some())
    }

    /// A box to be closed at `now`, if there is one.
    pub fn overdue(&self, limits: BoxLimits, now: Instant) -> Option<BoxId> {
        let first = |order: &BTreeSet<(Instant, BoxId)>, limit: u64| {
            let (since, id) = order.first()?;
            (now.millis_since(*since) >= limit).then_some(*id)
        };
        first(&self.by_asked, limits.unasked)
            .or_else(|| first(&self.by_lost, limits.lost))
            .or_else(|| first(&self.by_delivered, limits.delivered))
    }

    /// SWAPDB has exchanged two databases, and with them the locks that letters are about.
    pub fn swap(&mut self, one: Db, other: Db) {
        if self.letters > 0 {
            self.homes.swap(one, other);
        }
    }

    /// Subtracts the letters that have gone.
    fn count_out(&mut self, letters: usize) {
        self.letters -= letters;
        if self.letters == 0 {
            self.homes = Homes::default();
        }
    }

    fn set_delivered_since(&mut self, id: BoxId, delivered_since: Option<Instant>) {
        let Some(found) = self.boxes.get_mut(&id) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut found.delivered_since, delivered_since) {
            self.by_delivered.remove(&(before, id));
        }
        if let Some(delivered_since) = delivered_since {
            self.by_delivered.insert((delivered_since, id));
        }
    }
}
