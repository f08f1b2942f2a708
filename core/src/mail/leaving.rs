//! How boxes go: at once for all who ask, and with what was in them a piece at a time.

use super::Mail;
use super::letter::{BoxId, Leaving, Letter, Untold, untold};
use super::mailbox::{Crowd, Leftover, Mailbox, entry, give_room_back};
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
        give_room_back(&mut self.names);
        give_room_back(&mut self.boxes);
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
        self.by_told.clear();
        self.crowds.push(Crowd {
            boxes: std::mem::take(&mut self.boxes).into_iter(),
            names: std::mem::take(&mut self.names).into_iter(),
            by_asked: std::mem::take(&mut self.by_asked).into_iter(),
        });
        for gone in self.leaving.values_mut() {
            gone.told = u64::MAX;
        }
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
            if let Some((number, letter)) = gone.letters.pop_last() {
                let told = number <= gone.told;
                return Some(self.letter_leaves(id, number, letter, told));
            }
            if let Some(waiter) = gone.requests.next() {
                return Some(self.request_leaves(id, waiter));
            }
            first.remove();
        }
        self.next_of_crowd()
    }

    fn letter_leaves(&mut self, id: BoxId, number: u64, letter: Letter, told: bool) -> Leaving {
        self.by_owner.remove(&entry(&letter, id, number));
        let untold = (!told).then(|| untold(letter)).flatten();
        let untold = untold.map(|untold| moved(untold, number, &self.swaps));
        self.count_out(1);
        untold.map_or(Leaving::Letter, Leaving::Grant)
    }

    fn request_leaves(&mut self, id: BoxId, waiter: WaiterId) -> Leaving {
        // It may have been decided meanwhile, or asked again with another box.
        if self.requests.get(&waiter) != Some(&id) {
            return Leaving::Letter;
        }
        self.requests.remove(&waiter);
        give_room_back(&mut self.requests);
        Leaving::Request(waiter)
    }

    /// One box of those that have gone together is to leave.
    fn next_of_crowd(&mut self) -> Option<Leaving> {
        let crowd = self.crowds.last_mut()?;
        crowd.names.next();
        crowd.by_asked.next();
        match crowd.boxes.next() {
            None => {
                self.crowds.pop();
            }
            Some((id, mut gone)) => {
                gone.told = u64::MAX;
                self.leave(id, gone);
            }
        }
        Some(Leaving::Letter)
    }
}

/// Where the lock is now that letter `number` told of.
fn moved(mut untold: Untold, number: u64, swaps: &[(u64, u32, u32)]) -> Untold {
    for (_, one, other) in swaps.iter().filter(|(at, _, _)| *at > number) {
        if untold.key.db == *one {
            untold.key.db = *other;
        } else if untold.key.db == *other {
            untold.key.db = *one;
        }
    }
    untold
}
