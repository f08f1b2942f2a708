//! Boxes, letters and the LOCK.MAIL calls that wait for them.

use mortise_core::mail::{BoxId, Leaving, Letter, Outcome, Posted, age};
use mortise_core::{Homes, Mode, WaiterId};

use super::resp::Out;
use super::{MAIL_TIMEOUT, Reader, Server, UNFORGOTTEN, WITHOUT_READER};
use crate::parts::ConnId;

/// All clients are the same ACL user.
const USER: &[u8] = b"default";

/// The options of a LOCK.MAIL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) after: Option<(u64, u64)>,
    pub(crate) wait: Option<u64>,
    pub(crate) count: usize,
}

impl Server {
    pub(super) fn find_box(&self, name: &[u8]) -> Option<BoxId> {
        self.mail.find(name, USER).ok().flatten()
    }

    pub(super) fn open_box(&mut self, name: &[u8]) -> BoxId {
        self.find_box(name).unwrap_or_else(|| {
            let since = self.next_number();
            let until = self.listened().after(MAIL_TIMEOUT);
            self.mail.make(name, USER, since, until)
        })
    }

    pub(super) fn post(&mut self, waiter: WaiterId, letter: Letter) {
        let number = self.next_number();
        match self.mail.post(waiter, number, letter, &Homes::default()) {
            Posted::In(id) => self.answer_reader(id, None),
            Posted::Returned => self.undo(waiter),
            Posted::NotByMail => {}
        }
    }

    /// `None` if the call waits.
    pub(super) fn collect(
        &mut self,
        from: Option<ConnId>,
        name: &[u8],
        call: Call,
    ) -> Option<Vec<u8>> {
        let found = self.find_box(name);
        let is_of_it = |since: u64| found.is_some_and(|id| id.0 == since);
        let is_new = call.after.is_some_and(|(since, _)| !is_of_it(since));
        let after = call
            .after
            .and_then(|(since, number)| is_of_it(since).then_some(number));
        let has_letters = found.is_some_and(|id| self.mail.has_letters_after(id, after));
        let id = self.open_box(name);
        self.answer_reader(id, Some("UNBLOCKED a newer LOCK.MAIL waits for this box"));
        let listened = self.listened();
        let (until, unread_until) = (
            listened.after(MAIL_TIMEOUT),
            listened.after(MAIL_TIMEOUT * UNFORGOTTEN),
        );
        for id in self.mail.ask(id, after, until, unread_until) {
            self.undelivered.take(id);
        }
        let Some(wait) = call.wait.filter(|_| !has_letters && !is_new) else {
            return Some(self.deliver(id, self.now, call.count));
        };
        let longest = MAIL_TIMEOUT / 2;
        let wait = if wait == 0 {
            longest
        } else {
            wait.min(longest)
        };
        let reader = Reader {
            from,
            arrived: self.now,
            limit: self.memory.now.after(wait),
            count: call.count,
        };
        self.readers.insert(id, reader);
        None
    }

    /// `[since, waited, letters]`.
    fn deliver(&mut self, id: BoxId, arrived: u64, count: usize) -> Vec<u8> {
        let now = self.now;
        let unread_until = self.listened().after(MAIL_TIMEOUT * UNFORGOTTEN);
        let letters = self
            .mail
            .deliver(id, count, unread_until, &Homes::default());
        let mut out = Out::default();
        out.array(3);
        out.int(id.0);
        out.int((now - arrived) / 1_000);
        out.array(letters.len());
        for letter in letters {
            self.undelivered.take(letter.letter.waiter);
            write_letter(&mut out, letter.number, letter.letter, now);
        }
        out.0
    }

    /// Answers the call that waits for the box, with letters or with an error.
    fn answer_reader(&mut self, id: BoxId, error: Option<&str>) {
        let Some(reader) = self.readers.remove(&id) else {
            return;
        };
        let reply = match error {
            Some(error) => Out::error(error),
            None => self.deliver(id, reader.arrived, reader.count),
        };
        self.out.extend(reader.from.map(|from| (from, reply)));
    }

    pub(super) fn answer_due_readers(&mut self) {
        let now = self.memory.now;
        let due = self.readers.iter().filter(|(_, it)| it.limit <= now);
        let due: Vec<BoxId> = due.map(|(id, _)| *id).collect();
        due.into_iter().for_each(|id| self.answer_reader(id, None));
    }

    /// A connection is closed: calls that wait on it end, and their boxes close soon.
    pub(crate) fn on_closed(&mut self, conn: ConnId) {
        let until = self.listened().after(WITHOUT_READER);
        let mail = &mut self.mail;
        self.readers.retain(|id, it| {
            let stays = it.from != Some(conn);
            if !stays {
                mail.set_lost(*id, until);
            }
            stays
        });
    }

    pub(super) fn close_overdue(&mut self) {
        while let Some(id) = self.mail.overdue(self.listened()) {
            self.answer_reader(id, None);
            self.mail.close(id);
            let mut requests = Vec::new();
            while let Some(leaving) = self.mail.next_leaving() {
                match leaving {
                    Leaving::Letter => {}
                    Leaving::Undelivered(id) => self.undo(id),
                    Leaving::Request(id) => requests.push(id),
                }
            }
            // `next_leaving` gives them in no order.
            requests.sort_unstable();
            for id in requests {
                self.memory.remove(id);
            }
        }
    }
}

fn write_letter(out: &mut Out, number: u64, letter: &Letter, now: u64) {
    let (fields, result) = match &letter.outcome {
        Outcome::Granted { .. } => (9, "granted"),
        Outcome::Denied => (6, "denied"),
        Outcome::Refused(_) => (7, "refused"),
    };
    let mode = match letter.mode {
        Mode::Read => "read",
        Mode::Write => "write",
    };
    out.array(2 * (fields + usize::from(letter.keys.several().is_some())));
    out.text(b"number");
    out.int(number);
    out.text(b"key");
    out.text(&letter.keys.first().name);
    if let Some(keys) = letter.keys.several() {
        out.text(b"keys");
        out.array(keys.len());
        keys.iter().for_each(|key| out.text(&key.name));
    }
    out.text(b"db");
    out.int(0);
    out.text(b"owner");
    out.text(&letter.owner.text());
    out.text(b"mode");
    out.text(mode.as_bytes());
    out.text(b"result");
    out.text(result.as_bytes());
    match &letter.outcome {
        Outcome::Granted {
            token, lease, at, ..
        } => {
            for (field, value) in [
                ("token", token.get()),
                ("lease", lease.as_millis()),
                ("age", age(*at, now)),
            ] {
                out.text(field.as_bytes());
                out.int(value);
            }
        }
        Outcome::Denied => {}
        Outcome::Refused(error) => {
            out.text(b"error");
            out.text(error.as_bytes());
        }
    }
}
