//! The contract of boxes and letters, written as simply as possible: lists that are searched.

/// How long a box lives after a LOCK.MAIL, after that lost its connection, and with delivered letters.
pub(crate) const UNASKED: u64 = 60;
pub(crate) const LOST: u64 = 20;
pub(crate) const UNREAD: u64 = 100;

#[derive(Debug)]
struct Mailbox {
    name: u8,
    since: u64,
    until: u64,
    unread_until: Option<u64>,
    letters: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    delivered: bool,
}

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum Sent {
    In(u64),
    Returned,
    NotByMail,
}

#[derive(Debug, Default)]
pub(crate) struct Reference {
    boxes: Vec<Mailbox>,
    /// Each waiter with the `since` of its box.
    requests: Vec<(u64, u64)>,
    /// Letters of closed boxes that were never delivered.
    undelivered: Vec<u64>,
}

impl Reference {
    fn get(&self, name: u8) -> Option<&Mailbox> {
        self.boxes.iter().find(|mailbox| mailbox.name == name)
    }

    fn get_mut(&mut self, name: u8) -> &mut Mailbox {
        let found = self.boxes.iter_mut().find(|mailbox| mailbox.name == name);
        found.expect("made before")
    }

    pub(crate) fn since(&self, name: u8) -> Option<u64> {
        self.get(name).map(|mailbox| mailbox.since)
    }

    pub(crate) fn boxes(&self) -> usize {
        self.boxes.len()
    }

    pub(crate) fn make(&mut self, name: u8, since: u64, now: u64) {
        self.boxes.push(Mailbox {
            name,
            since,
            until: now + UNASKED,
            unread_until: None,
            letters: Vec::new(),
        });
    }

    pub(crate) fn expect(&mut self, waiter: u64, name: u8) {
        let since = self.since(name).expect("made before");
        self.forget(waiter);
        self.requests.push((waiter, since));
    }

    pub(crate) fn forget(&mut self, waiter: u64) -> bool {
        let before = self.requests.len();
        self.requests.retain(|(of, _)| *of != waiter);
        self.requests.len() < before
    }

    pub(crate) fn box_of(&self, waiter: u64) -> Option<u64> {
        let mut requests = self.requests.iter();
        requests
            .find(|(of, _)| *of == waiter)
            .map(|(_, since)| *since)
    }

    pub(crate) fn box_len(&self, name: u8) -> usize {
        let Some(mailbox) = self.get(name) else {
            return 0;
        };
        let requests = self
            .requests
            .iter()
            .filter(|(_, since)| *since == mailbox.since);
        requests.count() + mailbox.letters.len()
    }

    pub(crate) fn has_letters(&self, name: u8) -> bool {
        self.get(name)
            .is_some_and(|mailbox| !mailbox.letters.is_empty())
    }

    pub(crate) fn post(&mut self, waiter: u64, number: u64) -> Sent {
        let Some(since) = self.box_of(waiter) else {
            return Sent::NotByMail;
        };
        self.forget(waiter);
        let found = self.boxes.iter_mut().find(|mailbox| mailbox.since == since);
        match found {
            Some(mailbox) => {
                let delivered = false;
                mailbox.letters.push(Entry { number, delivered });
                Sent::In(since)
            }
            None => Sent::Returned,
        }
    }

    /// The number of the nth letter of the box, or one past all.
    pub(crate) fn number_of(&self, name: u8, nth: u8) -> u64 {
        let letters = self.get(name).map(|mailbox| &mailbox.letters);
        let nth = letters.and_then(|letters| letters.get(usize::from(nth)));
        nth.map_or(0, |letter| letter.number)
    }

    /// The numbers of the letters that are forgotten though they were never delivered.
    pub(crate) fn ask(&mut self, name: u8, after: Option<u64>, now: u64) -> Vec<u64> {
        let mailbox = self.get_mut(name);
        mailbox.until = now + UNASKED;
        let Some(after) = after else {
            return Vec::new();
        };
        let forgotten = mailbox
            .letters
            .iter()
            .filter(|letter| letter.number <= after);
        let undelivered = forgotten.filter(|letter| !letter.delivered);
        let undelivered = undelivered.map(|letter| letter.number).collect();
        let before = mailbox.letters.len();
        mailbox.letters.retain(|letter| letter.number > after);
        if mailbox.letters.len() < before {
            let delivered = mailbox.letters.iter().any(|letter| letter.delivered);
            mailbox.unread_until = delivered.then_some(now + UNREAD);
        }
        undelivered
    }

    pub(crate) fn deliver(&mut self, name: u8, count: usize, now: u64) -> Vec<u64> {
        let mailbox = self.get_mut(name);
        let mut delivered = Vec::new();
        for letter in mailbox.letters.iter_mut().take(count) {
            letter.delivered = true;
            delivered.push(letter.number);
        }
        if !delivered.is_empty() {
            mailbox.unread_until.get_or_insert(now + UNREAD);
        }
        delivered
    }

    pub(crate) fn close(&mut self, since: u64) {
        let Some(at) = self.boxes.iter().position(|mailbox| mailbox.since == since) else {
            return;
        };
        let gone = self.boxes.remove(at);
        let undelivered = gone.letters.iter().filter(|letter| !letter.delivered);
        self.undelivered
            .extend(undelivered.map(|letter| letter.number));
    }

    pub(crate) fn close_all(&mut self) {
        let all: Vec<u64> = self.boxes.iter().map(|mailbox| mailbox.since).collect();
        all.into_iter().for_each(|since| self.close(since));
    }

    pub(crate) fn set_lost(&mut self, name: u8, now: u64) {
        let mailbox = self.get_mut(name);
        mailbox.until = mailbox.until.min(now + LOST);
    }

    /// Boxes to be closed at `now`.
    pub(crate) fn overdue(&self, now: u64) -> Vec<u64> {
        let late = |mailbox: &&Mailbox| {
            mailbox.until <= now || mailbox.unread_until.is_some_and(|until| until <= now)
        };
        self.boxes
            .iter()
            .filter(late)
            .map(|mailbox| mailbox.since)
            .collect()
    }

    pub(crate) fn request_leaves(&mut self, waiter: u64) {
        let since = self.box_of(waiter).expect("it waits");
        assert!(
            self.boxes.iter().all(|mailbox| mailbox.since != since),
            "its box is there"
        );
        self.forget(waiter);
    }

    pub(crate) fn undelivered_leaves(&mut self, number: u64) {
        let at = self.undelivered.iter().position(|letter| *letter == number);
        self.undelivered
            .remove(at.expect("a letter that was never delivered"));
    }

    /// Whether nothing is left of closed boxes.
    pub(crate) fn has_left(&self) -> bool {
        let gone = |since: &u64| self.boxes.iter().all(|mailbox| mailbox.since != *since);
        self.undelivered.is_empty() && !self.requests.iter().any(|(_, since)| gone(since))
    }
}
