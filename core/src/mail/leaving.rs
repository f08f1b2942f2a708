//! How boxes go: at once for all who ask, and with what was in them a piece at a time.

use super::Mail;
use super::letter::{BoxId, Leaving, untold};
use super::mailbox::{Crowd, Leftover, Mailbox, Stored};
use crate::queues::WaiterId;

impl Mail {
    /// The box goes. What was in it leaves a piece at a time, see [`Self::next_leaving`].
    pub fn close(&mut self, id: BoxId) {
        let Some(gone) = self.boxes.remove(&id) else {
            return;
        };
        self.names.remove(&gone.name);
        self.by_asked.remove(&(gone.asked, id));
        if let Some(told_since) = gone.told_since {
            self.by_told.remove(&(told_since, id));
        }
        self.leave(id, gone);
    }

    fn leave(&mut self, id: BoxId, gone: Mailbox) {
        if gone.len() == 0 {
            return;
        }
        let leftover = Leftover {
            told: gone.told,
            letters: gone.letters,
            requests: gone.requests.into_iter(),
        };
        self.leaving.insert(id, leftover);
    }

    /// Every box goes, and nothing is to be given back: this server decides no more.
    pub fn close_all(&mut self) {
        let last = self.boxes.last_key_value().map(|(id, _)| *id);
        let leaving = self.leaving.last_key_value().map(|(id, _)| *id);
        self.not_given_back = self.not_given_back.max(last).max(leaving);
        self.crowds.push(Crowd {
            boxes: std::mem::take(&mut self.boxes).into_iter(),
            names: std::mem::take(&mut self.names),
            walk: 0,
            by_asked: std::mem::take(&mut self.by_asked).into_iter(),
            by_told: std::mem::take(&mut self.by_told).into_iter(),
        });
    }

    /// Of a box that has gone not all has left.
    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty() || !self.crowds.is_empty()
    }

    /// The next piece of the boxes that have gone; `None` if all has left.
    pub fn next_leaving(&mut self) -> Option<Leaving> {
        while let Some(mut first) = self.leaving.first_entry() {
            let (id, gone) = (*first.key(), first.get_mut());
            // The last grant first: what it changed was changed by the one before.
            if let Some((number, stored)) = gone.letters.pop_last() {
                let told = number <= gone.told || self.not_given_back >= Some(id);
                return Some(self.letter_leaves(id, number, stored, told));
            }
            if let Some(waiter) = gone.requests.next() {
                return Some(self.request_leaves(id, waiter));
            }
            first.remove();
        }
        self.next_of_crowd()
    }

    fn letter_leaves(&mut self, id: BoxId, number: u64, stored: Stored, told: bool) -> Leaving {
        self.by_owner.remove(&stored.entry(id, number));
        let letter = stored.into_letter(&self.homes);
        let untold = (!told).then(|| untold(letter)).flatten();
        self.count_out(1);
        untold.map_or(Leaving::Letter, Leaving::Grant)
    }

    fn request_leaves(&mut self, id: BoxId, waiter: WaiterId) -> Leaving {
        // It may have been decided meanwhile, or asked again with another box.
        if self.requests.get(&waiter) != Some(&id) {
            return Leaving::Letter;
        }
        self.requests.remove(&waiter);
        Leaving::Request(waiter)
    }

    /// One box of those that have gone together is to leave.
    fn next_of_crowd(&mut self) -> Option<Leaving> {
        let crowd = self.crowds.last_mut()?;
        crowd.names.take_any(&mut crowd.walk);
        crowd.by_asked.next();
        crowd.by_told.next();
        match crowd.boxes.next() {
            None => {
                self.crowds.pop();
            }
            Some((id, gone)) => self.leave(id, gone),
        }
        Some(Leaving::Letter)
    }
}
