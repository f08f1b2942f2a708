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

mod letter;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub use letter::{BoxId, Leaving, Letter, NotYours, Numbered, Outcome, Posted, age};

use crate::homes::{Home, Homes};
use crate::queues::WaiterId;
use crate::types::Instant;

/// Every box of a server.
#[derive(Debug, Default)]
pub struct Mail {
    names: BTreeMap<Rc<[u8]>, BoxId>,
    boxes: BTreeMap<BoxId, Mailbox>,
    /// How many of them are open.
    open: usize,
    /// All boxes up to this one are closed.
    closed_until: Option<BoxId>,
    /// Closed boxes that may not be empty yet, and up to which number their letters were delivered.
    leaving: BTreeMap<BoxId, u64>,
    /// The box for the answer of each request.
    requests: BTreeMap<WaiterId, BoxId>,
    /// How many keys each request asks for, by box.
    by_box: BTreeMap<(BoxId, WaiterId), u8>,
    letters: BTreeMap<(BoxId, u64), Stored>,
    /// The keys of all requests.
    keys: usize,
    /// Boxes by when their time is up.
    limits: BTreeSet<(Instant, BoxId)>,
}

#[derive(Debug)]
struct Mailbox {
    name: Rc<[u8]>,
    user: Box<[u8]>,
    /// Until when the next LOCK.MAIL has to name it.
    until: Instant,
    /// Until when its delivered letters have to be deleted; [`Instant::NEVER`] if it has none.
    unread_until: Instant,
    /// Up to which number letters were delivered.
    delivered: u64,
    /// Its letters, and the keys of its requests.
    len: usize,
}

/// A letter in a box.
#[derive(Debug)]
struct Stored {
    letter: Letter,
    /// Where the lock of a grant is: SWAPDB moves it, but no queue.
    home: Option<Home>,
}

impl Mailbox {
    /// When its time is up.
    fn limit(&self) -> Instant {
        self.until.min(self.unread_until)
    }
}

impl Mail {
    /// No box.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many boxes there are.
    pub fn boxes(&self) -> usize {
        self.open
    }

    /// How many letters are not forgotten.
    pub fn letters(&self) -> usize {
        self.letters.len()
    }

    /// How many requests wait by mail.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Boxes, letters and requests. A request for several keys counts once for each.
    pub fn len(&self) -> usize {
        self.boxes() + self.letters() + self.keys
    }

    /// There are no boxes, letters and requests.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Letters and requests of one box. A request for several keys counts once for each.
    pub fn box_len(&self, id: BoxId) -> usize {
        self.get(id).map_or(0, |found| found.len)
    }

    fn get(&self, id: BoxId) -> Option<&Mailbox> {
        let found = self.boxes.get(&id);
        found.filter(|_| Some(id) > self.closed_until)
    }

    fn get_mut(&mut self, id: BoxId) -> Option<&mut Mailbox> {
        let found = self.boxes.get_mut(&id);
        found.filter(|_| Some(id) > self.closed_until)
    }

    /// The box `name`, if it is there.
    ///
    /// # Errors
    /// [`NotYours`] if `user` did not make it.
    pub fn find(&self, name: &[u8], user: &[u8]) -> Result<Option<BoxId>, NotYours> {
        let id = self.names.get(name).copied();
        let found = id.and_then(|id| self.get(id));
        match found {
            Some(found) if *found.user != *user => Err(NotYours),
            found => Ok(id.filter(|_| found.is_some())),
        }
    }

    /// Creates the box `name`, which does not exist. No box and no letter had the number `since` before. Its time is up at `until`.
    pub fn make(&mut self, name: &[u8], user: &[u8], since: u64, until: Instant) -> BoxId {
        let (id, name) = (BoxId(since), Rc::<[u8]>::from(name));
        let made = Mailbox {
            name: Rc::clone(&name),
            user: user.into(),
            until,
            unread_until: Instant::NEVER,
            delivered: 0,
            len: 0,
        };
        self.names.insert(name, id);
        self.boxes.insert(id, made);
        self.open += 1;
        self.limits.insert((until, id));
        id
    }

    /// The answer of `waiter`, which asks for so many keys, goes to the box from now on.
    pub fn expect(&mut self, waiter: WaiterId, id: BoxId, keys: usize) {
        self.forget_request(waiter);
        if let Some(found) = self.get_mut(id) {
            found.len += keys;
            self.keys += keys;
            self.requests.insert(waiter, id);
            // A request is for 16 keys at most.
            self.by_box.insert((id, waiter), keys as u8);
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
        let found = self.get(self.box_of(waiter)?)?;
        Some(&found.user)
    }

    /// `waiter` has left its queue without an answer. True if it waited by mail.
    pub fn forget_request(&mut self, waiter: WaiterId) -> bool {
        let Some(id) = self.requests.remove(&waiter) else {
            return false;
        };
        let keys = self.by_box.remove(&(id, waiter)).map_or(0, usize::from);
        self.keys -= keys;
        if let Some(found) = self.boxes.get_mut(&id) {
            found.len -= keys;
        }
        true
    }

    /// `waiter` was answered. `number` is larger than every one before.
    pub fn post(&mut self, waiter: WaiterId, number: u64, letter: Letter, homes: &Homes) -> Posted {
        let Some(id) = self.box_of(waiter) else {
            return Posted::NotByMail;
        };
        self.forget_request(waiter);
        let Some(found) = self.get_mut(id) else {
            return Posted::Returned;
        };
        found.len += 1;
        let home = match letter.outcome {
            Outcome::Granted { .. } => Some(homes.home_of(letter.keys.first().db)),
            Outcome::Denied | Outcome::Refused(_) => None,
        };
        self.letters.insert((id, number), Stored { letter, home });
        Posted::In(id)
    }

    /// A LOCK.MAIL asks for the letters of the box, and has got those up to `after`. The next one has to come before `until`, and delete those
    /// that stay delivered before `unread_until`. Returns the requests of letters that go though they were never delivered.
    pub fn ask(
        &mut self,
        id: BoxId,
        after: Option<u64>,
        until: Instant,
        unread_until: Instant,
    ) -> Vec<WaiterId> {
        self.set_limits(id, |found| found.until = until);
        let mut undelivered = Vec::new();
        let Some(delivered) = self.get(id).map(|found| found.delivered) else {
            return undelivered;
        };
        let acknowledged =
            |(number, _): &(u64, &Stored)| after.is_some_and(|after| *number <= after);
        let letters = self.letters_of(id).take_while(acknowledged);
        let numbers: Vec<u64> = letters.map(|(number, _)| number).collect();
        for &number in &numbers {
            let gone = self.remove_letter(id, number);
            undelivered.extend(gone.filter(|_| number > delivered));
        }
        if !numbers.is_empty() {
            let next = self.letters_of(id).next();
            let is_delivered = next.is_some_and(|(next, _)| next <= delivered);
            self.set_limits(id, |found| {
                found.unread_until = match is_delivered {
                    true => unread_until,
                    false => Instant::NEVER,
                };
            });
        }
        undelivered
    }

    /// The letters of the box, with their numbers, oldest first.
    fn letters_of(&self, id: BoxId) -> impl DoubleEndedIterator<Item = (u64, &Stored)> {
        let letters = self.letters.range((id, 0)..=(id, u64::MAX));
        letters.map(|((_, number), stored)| (*number, stored))
    }

    /// Returns the request that the letter answered.
    fn remove_letter(&mut self, id: BoxId, number: u64) -> Option<WaiterId> {
        let stored = self.letters.remove(&(id, number))?;
        if let Some(found) = self.boxes.get_mut(&id) {
            found.len -= 1;
        }
        Some(stored.letter.waiter)
    }

    /// The first `count` letters, with their numbers, oldest first. They count as delivered from now on, and have to be deleted before
    /// `unread_until`.
    pub fn deliver<'m>(
        &'m mut self,
        id: BoxId,
        count: usize,
        unread_until: Instant,
        homes: &Homes,
    ) -> impl ExactSizeIterator<Item = Numbered<'m>> + use<'m> {
        let last = self.letters_of(id).take(count).last();
        let last = last.map(|(number, _)| number);
        if let Some(last) = last {
            self.set_limits(id, |found| {
                found.delivered = found.delivered.max(last);
                found.unread_until = found.unread_until.min(unread_until);
            });
        }
        let is_open = self.get(id).is_some();
        let letters = self.letters_of(id).take(if is_open { count } else { 0 });
        let numbered = letters.map(|(number, Stored { letter, home })| Numbered {
            number,
            db: home.map_or(letter.keys.first().db, |home| homes.db_of(home)),
            letter,
        });
        numbered.collect::<Vec<_>>().into_iter()
    }

    /// The box has letters after `after`.
    pub fn has_letters_after(&self, id: BoxId, after: Option<u64>) -> bool {
        let last = self.letters_of(id).next_back();
        self.get(id).is_some() && last.is_some_and(|(last, _)| Some(last) > after)
    }
}

/// How boxes are closed: at once for callers, and then a slice of their requests and letters at a time.
impl Mail {
    /// A box whose time is up at `now`, if there is one. None while the first one was closed with all others: those are emptied first.
    pub fn overdue(&self, now: Instant) -> Option<BoxId> {
        let (until, id) = self.limits.first()?;
        (Some(*id) > self.closed_until && *until <= now).then_some(*id)
    }

    /// The connection over which the box's newest LOCK.MAIL waited was closed: the next one has to come before `until`.
    pub fn set_lost(&mut self, id: BoxId, until: Instant) {
        self.set_limits(id, |found| found.until = found.until.min(until));
    }

    fn set_limits(&mut self, id: BoxId, change: impl FnOnce(&mut Mailbox)) {
        if let Some(found) = self.boxes.get_mut(&id) {
            self.limits.remove(&(found.limit(), id));
            change(found);
            self.limits.insert((found.limit(), id));
        }
    }

    /// Closes the box. Its contents leave one by one, see [`Self::next_leaving`].
    pub fn close(&mut self, id: BoxId) {
        self.open -= usize::from(self.get(id).is_some());
        let Some(gone) = self.boxes.remove(&id) else {
            return;
        };
        self.limits.remove(&(gone.limit(), id));
        // Another box may have the name by now.
        if self.names.get(&gone.name) == Some(&id) {
            self.names.remove(&gone.name);
        }
        if gone.len > 0 {
            self.leaving.insert(id, gone.delivered);
        }
    }

    /// Closes all boxes.
    pub fn close_all(&mut self) {
        self.closed_until = self.boxes.last_key_value().map(|(last, _)| *last);
        self.open = 0;
    }

    /// The next box that was closed together with all others.
    fn next_closed(&self) -> Option<BoxId> {
        let (first, _) = self.boxes.first_key_value()?;
        (Some(*first) <= self.closed_until).then_some(*first)
    }

    /// The next request or letter of the closed boxes; `None` if they are empty.
    pub fn next_leaving(&mut self) -> Option<Leaving> {
        while let Some((id, delivered)) = self.leaving.first_key_value() {
            let (id, delivered) = (*id, *delivered);
            // The last grant first, because a later grant may have changed the hold of an earlier one.
            let last = self.letters_of(id).next_back().map(|(number, _)| number);
            if let Some(number) = last {
                let waiter = self.remove_letter(id, number);
                let undelivered = waiter.filter(|_| number > delivered);
                return Some(undelivered.map_or(Leaving::Letter, Leaving::Undelivered));
            }
            let mut requests = self.by_box.range((id, WaiterId(0))..);
            if let Some(((of, waiter), _)) = requests.next()
                && *of == id
            {
                let waiter = *waiter;
                self.forget_request(waiter);
                return Some(Leaving::Request(waiter));
            }
            self.leaving.remove(&id);
        }
        let next = self.next_closed()?;
        self.close(next);
        Some(Leaving::Letter)
    }
}
