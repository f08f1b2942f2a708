//! Closes mailboxes: at once for callers, and then a slice of their requests and letters at a time.

use super::Mail;
use super::letter::{BoxId, Leaving};
use super::mailbox::{Crowd, Leftover, Mailbox};
use crate::queues::WaiterId;

impl Mail {
    /// Closes the box. Its contents leave one by one, see [`Self::next_leaving`].
    pub fn close(&mut self, id: BoxId) {
        let Some(gone) = self.boxes.remove(&id) else {
            return;
        };
        self.names.remove(&gone.name);
        self.by_asked.remove(&(gone.asked, id));
        if let Some(lost) = gone.lost {
            self.by_lost.remove(&(lost, id));
        }
        if let Some(delivered_since) = gone.delivered_since {
            self.by_delivered.remove(&(delivered_since, id));
        }
        self.leave(id, gone);
    }

    fn leave(&mut self, id: BoxId, gone: Mailbox) {
        if gone.len() == 0 {
            return;
        }
        let leftover = Leftover {
            delivered: gone.delivered,
            letters: gone.letters,
            requests: gone.requests.into_iter(),
        };
        self.leaving.insert(id, leftover);
    }

    /// Closes all boxes.
    pub fn close_all(&mut self) {
        self.crowds.push(Crowd {
            boxes: std::mem::take(&mut self.boxes).into_iter(),
            names: std::mem::take(&mut self.names).into_iter(),
            by_asked: std::mem::take(&mut self.by_asked).into_iter(),
            by_lost: std::mem::take(&mut self.by_lost).into_iter(),
            by_delivered: std::mem::take(&mut self.by_delivered).into_iter(),
        });
    }

    /// A closed box is not empty yet.
    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty() || !self.crowds.is_empty()
    }

    /// The next request or letter of the closed boxes; `None` if they are empty.
    pub fn next_leaving(&mut self) -> Option<Leaving> {
        while let Some(mut first) = self.leaving.first_entry() {
            let (id, gone) = (*first.key(), first.get_mut());
            // The last grant first, because a later grant may have changed the hold of an earlier one.
            if let Some((number, stored)) = gone.letters.pop_last() {
                let is_delivered = number <= gone.delivered;
                self.count_out(1);
                return Some(match is_delivered {
                    true => Leaving::Letter,
                    false => Leaving::Undelivered(stored.letter.waiter),
                });
            }
            if let Some(waiter) = gone.requests.next() {
                return Some(self.request_leaves(id, waiter));
            }
            first.remove();
        }
        self.next_of_crowd()
    }

    fn request_leaves(&mut self, id: BoxId, waiter: WaiterId) -> Leaving {
        // The request may have been decided meanwhile, or sent again with another box.
        if self.requests.get(&waiter) != Some(&id) {
            return Leaving::Letter;
        }
        self.requests.remove(&waiter);
        self.forget_more_keys(waiter);
        Leaving::Request(waiter)
    }

    /// Picks one of the boxes that were closed together.
    fn next_of_crowd(&mut self) -> Option<Leaving> {
        let crowd = self.crowds.last_mut()?;
        crowd.names.next();
        crowd.by_asked.next();
        crowd.by_lost.next();
        crowd.by_delivered.next();
        match crowd.boxes.next() {
            None => {
                self.crowds.pop();
            }
            Some((id, gone)) => self.leave(id, gone),
        }
        Some(Leaving::Letter)
    }
}
