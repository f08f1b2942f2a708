//! The client's side of a box: which acquisitions are under way at one server process, and the letters that decide those
//! that wait.
//!
//! A name is entered before its request is sent, because a letter may overtake the reply. The server sends letters again
//! until they are forgotten, so one that was read is not read again: what was decided then may have been given back since.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::value::{BootInstant, ConnectionError, Error};
use crate::wire::command::LastRead;
use crate::wire::{Answer, Command, Fields, FromReply, Name, NoReply, Reply, unexpected};

/// The answer to a request that waited, and when it was decided at the earliest: it counts as sent then.
pub(crate) type Decision = (Answer, BootInstant);

/// The box is gone: its requests no longer wait, or were granted and given back.
fn forgotten() -> Answer {
    let error = "the server has closed the box of the requests";
    Err(NoReply::Unknown(ConnectionError::new(error)))
}

/// So many calls in a row may fail before all that wait fail.
const MOST_FAILURES: u32 = 2;

#[derive(Debug)]
struct Waiting {
    name: Name,
    /// The box that its request was put in, once it waits there.
    since: Option<u64>,
    decision: Option<Decision>,
    waker: Option<Waker>,
}

/// What follows from letters, or from their absence.
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    pub(crate) wakers: Vec<Waker>,
    /// What was granted though nobody here asks for it any more.
    pub(crate) unwanted: Vec<Name>,
}

#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    since: Option<u64>,
    /// The number of the last letter that was read.
    read: u64,
    waiting: BTreeMap<Arc<[u8]>, Waiting>,
    /// How many of them wait in a queue.
    queued: usize,
    /// A request may wait in a box that the server has closed since.
    may_have_closed: bool,
    is_collected: bool,
    is_closed: bool,
    /// How many calls have failed in a row.
    pub(crate) failures: u32,
}

impl Mailbox {
    /// A request is about to be sent under this name. An error once it is closed.
    pub(crate) fn enter(&mut self, name: &Name) -> Result<(), Error> {
        if self.is_closed {
            return Err(Error::Closed);
        }
        let waiting = Waiting {
            name: name.clone(),
            since: None,
            decision: None,
            waker: None,
        };
        self.waiting.insert(name.owner.clone(), waiting);
        Ok(())
    }

    /// The server replied that the request waits. Whether somebody has to begin to collect.
    pub(crate) fn queued(&mut self, owner: &[u8], reply: &Reply) -> bool {
        if let Some(waiting) = self.waiting.get_mut(owner)
            && let Reply::Array(items) = reply
            && let Some(Reply::Int(since)) = items.get(1)
        {
            self.queued += usize::from(waiting.since.is_none());
            waiting.since = Some(since.unsigned_abs());
            self.may_have_closed |= waiting.since != self.since;
        }
        !mem::replace(&mut self.is_collected, true)
    }

    /// The acquisition under this name has ended.
    pub(crate) fn forget(&mut self, owner: &[u8]) {
        let waiting = self.waiting.remove(owner);
        self.queued -= usize::from(waiting.is_some_and(|it| it.since.is_some()));
    }

    /// Ends everything that is under way, and refuses what comes.
    pub(crate) fn close(&mut self) -> Delivered {
        self.is_closed = true;
        let unwanted = self.waiting.values().map(|it| it.name.clone()).collect();
        let wakers = self.fail(&Err(NoReply::Closed));
        Delivered { wakers, unwanted }
    }

    /// What was decided; otherwise the waker is woken then.
    pub(crate) fn poll(&mut self, owner: &[u8], waker: &Waker) -> Poll<Decision> {
        let Some(waiting) = self.waiting.get_mut(owner) else {
            return Poll::Ready((forgotten(), BootInstant::default()));
        };
        let decision = waiting.decision.take();
        if decision.is_none() {
            waiting.waker = Some(waker.clone());
        }
        decision.map_or(Poll::Pending, Poll::Ready)
    }

    /// What collects the next letters of the box of this name, waiting up to `wait` for them; `None` once nobody waits.
    pub(crate) fn collect<'a>(&mut self, name: &'a [u8], wait: Duration) -> Option<Command<'a>> {
        self.is_collected = self.queued > 0;
        let number = self.read;
        let command = Command::Mail {
            mailbox: name,
            read: self.since.map(|since| LastRead { since, number }),
            wait: wait.as_millis() as u64,
        };
        self.is_collected.then_some(command)
    }

    /// The answer to what was sent at `sent`. `is_elsewhere`: the box is not served there any more.
    pub(crate) fn on_answer(
        &mut self,
        answer: Answer,
        sent: BootInstant,
        is_elsewhere: bool,
    ) -> Delivered {
        self.failures += 1;
        let failure = match answer {
            Ok(Reply::Error(line)) if is_elsewhere || line.starts_with("READONLY") => forgotten(),
            // A newer call of ours has taken its place, or an operator has unblocked its connection.
            Ok(Reply::Error(line)) if line.starts_with("UNBLOCKED") => return Delivered::default(),
            Ok(Reply::Error(line)) => Ok(Reply::Error(line)),
            Ok(reply) => match self.on_mail(reply, sent) {
                Ok(delivered) => {
                    self.failures = 0;
                    return delivered;
                }
                Err(error) => Ok(Reply::Error(format!("ERR {error}"))),
            },
            Err(gone @ (NoReply::RuntimeGone | NoReply::Closed | NoReply::Forked)) => Err(gone),
            // Again on a new connection: the boxes outlive the old one, which may be silent for a second call until then.
            Err(_) if self.failures <= MOST_FAILURES => return Delivered::default(),
            // What was asked for waits there, or has been granted.
            Err(NoReply::NotSent(error) | NoReply::Unknown(error)) => Err(NoReply::Unknown(error)),
        };
        Delivered {
            wakers: self.fail(&failure),
            unwanted: Vec::new(),
        }
    }

    fn on_mail(&mut self, reply: Reply, sent: BootInstant) -> Result<Delivered, Error> {
        let (since, waited, letters) = envelope(reply)?;
        // By the server's clock, which may be a hundredth too fast.
        let written = sent + (waited - waited / 100);
        let (mut wakers, mut unwanted) = (Vec::new(), Vec::new());
        if self.since != Some(since) {
            (self.since, self.read, self.may_have_closed) = (Some(since), 0, true);
        }
        for mut letter in letters {
            let number = letter.get("number")?;
            if number <= self.read {
                continue;
            }
            self.read = number;
            let mut bytes = |name| letter.get::<Vec<u8>>(name).map(Arc::from);
            let (key, owner) = (bytes("key")?, bytes("owner")?);
            let keys: Vec<Vec<u8>> = letter.get("keys").unwrap_or_default();
            let decision = decision(&mut letter, written)?;
            match self.waiting.get_mut(&owner) {
                Some(waiting) => decide(waiting, decision, &mut wakers),
                None if matches!(decision.0, Ok(Reply::Int(_))) => {
                    let keys = keys.into_iter().map(Arc::from).collect::<Arc<[_]>>();
                    let keys = (!keys.is_empty()).then_some(keys);
                    unwanted.push(Name { key, owner, keys });
                }
                None => {}
            }
        }
        // Not with every letter: tens of thousands of requests may wait.
        if mem::take(&mut self.may_have_closed) {
            for waiting in self.waiting.values_mut() {
                if waiting.since.is_some_and(|it| it != since) {
                    decide(waiting, (forgotten(), sent), &mut wakers);
                }
            }
        }
        Ok(Delivered { wakers, unwanted })
    }

    /// Nobody collects any more. Returns the tasks to wake.
    pub(crate) fn abandon(&mut self) -> Vec<Waker> {
        self.is_collected = false;
        self.fail(&Err(NoReply::RuntimeGone))
    }

    /// Sets the result of all that wait. Returns the tasks to wake.
    fn fail(&mut self, answer: &Answer) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for waiting in self.waiting.values_mut() {
            let decision = (answer.clone(), BootInstant::default());
            decide(waiting, decision, &mut wakers);
        }
        wakers
    }
}

fn decide(waiting: &mut Waiting, decision: Decision, wakers: &mut Vec<Waker>) {
    waiting.decision.get_or_insert(decision);
    wakers.extend(waiting.waker.take());
}

/// `[since, waited, letters]`.
fn envelope(reply: Reply) -> Result<(u64, Duration, Vec<Fields>), Error> {
    let parts = match reply {
        Reply::Array(parts) => <[Reply; 3]>::try_from(parts).map_err(Reply::Array),
        other => Err(other),
    };
    let [since, waited, letters] = parts.map_err(|other| unexpected(&other))?;
    Ok((
        u64::read(since)?,
        FromReply::read(waited)?,
        FromReply::read(letters)?,
    ))
}

/// What a letter says that was written at `written` at the earliest, by this machine's clock.
fn decision(letter: &mut Fields, written: BootInstant) -> Result<Decision, Error> {
    let answer = match letter.get::<Vec<u8>>("result")?.as_slice() {
        b"granted" => {
            let answer = Reply::Int(letter.get::<u64>("token")? as i64);
            return Ok((Ok(answer), written.back(letter.get("age")?)));
        }
        b"refused" => {
            let line: Vec<u8> = letter.get("error")?;
            Reply::Error(String::from_utf8_lossy(&line).into_owned())
        }
        _ => Reply::Nil,
    };
    Ok((Ok(answer), written))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.as_bytes().to_vec())
    }

    fn letter(number: i64, owner: &str, result: &str, rest: &[(&str, Reply)]) -> Reply {
        let fields = [
            ("number", Reply::Int(number)),
            ("key", text("k")),
            ("owner", text(owner)),
            ("result", text(result)),
        ];
        let flat = fields.iter().chain(rest);
        Reply::Array(
            flat.flat_map(|(name, value)| [text(name), value.clone()])
                .collect(),
        )
    }

    fn granted(number: i64, owner: &str, age: i64) -> Reply {
        let rest = [("token", Reply::Int(number)), ("age", Reply::Int(age))];
        letter(number, owner, "granted", &rest)
    }

    fn mail(since: i64, waited: i64, letters: &[Reply]) -> Reply {
        let letters = Reply::Array(letters.to_vec());
        Reply::Array(vec![Reply::Int(since), Reply::Int(waited), letters])
    }

    fn name(owner: &str) -> Name {
        Name::new(b"k".as_slice().into(), owner.as_bytes().into())
    }

    fn mailbox(owners: &[&str]) -> Mailbox {
        let mut mailbox = Mailbox::default();
        for owner in owners {
            mailbox.enter(&name(owner)).unwrap();
        }
        mailbox
    }

    fn decided(mailbox: &mut Mailbox, owner: &str) -> String {
        match mailbox.poll(owner.as_bytes(), Waker::noop()) {
            Poll::Ready(decision) => format!("{:?}", decision.0),
            Poll::Pending => "pending".to_owned(),
        }
    }

    #[test]
    fn a_grant_counts_from_when_it_was_told_less_its_age() {
        let (mut mailbox, sent) = (mailbox(&["a"]), BootInstant::now());
        let mail = mail(1, 700, &[granted(5, "a", 200)]);
        mailbox.on_mail(mail, sent).unwrap();
        let Poll::Ready((Ok(Reply::Int(5)), since)) = mailbox.poll(b"a", Waker::noop()) else {
            panic!();
        };
        // Of the wait a hundredth is for clocks that run apart.
        assert_eq!(since, sent + Duration::from_millis(700 - 7 - 200));
    }

    #[test]
    fn a_grant_that_nobody_wants_is_returned_once_and_one_that_was_read_is_not() {
        let (mut mailbox, now) = (mailbox(&["a"]), BootInstant::now());
        let letters = [granted(5, "a", 0), granted(6, "b", 0)];
        let unwanted = mailbox.on_mail(mail(1, 0, &letters), now).unwrap().unwanted;
        let [name] = &unwanted[..] else { panic!() };
        assert_eq!((&*name.key, &*name.owner), (&b"k"[..], &b"b"[..]));
        assert_eq!(decided(&mut mailbox, "a"), "Ok(5)");
        mailbox.forget(b"a");
        // The reply to the call that deletes them is lost: they are delivered again.
        let unwanted = mailbox.on_mail(mail(1, 0, &letters), now).unwrap().unwanted;
        assert!(unwanted.is_empty());
        mailbox.enter(&self::name("c")).unwrap();
        assert!(mailbox.collect(b"box", Duration::ZERO).is_none());
        let queued = Reply::Array(vec![text("QUEUED"), Reply::Int(1)]);
        mailbox.queued(b"c", &queued);
        let read = match mailbox.collect(b"box", Duration::ZERO) {
            Some(Command::Mail { read, .. }) => read.map(|it| (it.since, it.number)),
            other => panic!("{other:?}"),
        };
        assert_eq!(read, Some((1, 6)));
    }

    #[test]
    fn an_unwanted_grant_of_several_keys_is_returned_at_each() {
        let (mut mailbox, now) = (mailbox(&[]), BootInstant::now());
        let keys = Reply::Array(vec![text("k"), text("l")]);
        let rest = [
            ("token", Reply::Int(7)),
            ("age", Reply::Int(0)),
            ("keys", keys),
        ];
        let letters = [letter(1, "a", "granted", &rest)];
        let unwanted = mailbox.on_mail(mail(1, 0, &letters), now).unwrap().unwanted;
        let keys: Vec<_> = unwanted[0].each().map(|name| name.key).collect();
        assert_eq!(
            keys.iter().map(|it| &**it).collect::<Vec<_>>(),
            [b"k", b"l"]
        );
    }

    #[test]
    fn a_new_box_ends_the_wait_of_those_who_were_in_the_old_one_and_of_nobody_else() {
        let (mut mailbox, now) = (mailbox(&["old", "new", "asking"]), BootInstant::now());
        for (owner, since) in [("old", 1), ("new", 2)] {
            let reply = Reply::Array(vec![text("QUEUED"), Reply::Int(since)]);
            mailbox.queued(owner.as_bytes(), &reply);
        }
        mailbox.on_mail(mail(2, 0, &[]), now).unwrap();
        assert!(decided(&mut mailbox, "old").contains("has closed the box"));
        assert_eq!(decided(&mut mailbox, "new"), "pending");
        assert_eq!(decided(&mut mailbox, "asking"), "pending");
    }

    fn queued(mailbox: &mut Mailbox, owner: &str, since: i64) -> bool {
        let reply = Reply::Array(vec![text("QUEUED"), Reply::Int(since)]);
        mailbox.queued(owner.as_bytes(), &reply)
    }

    #[test]
    fn a_late_reply_that_names_a_closed_box_ends_the_wait_with_the_next_letters() {
        let (mut mailbox, now) = (mailbox(&["late"]), BootInstant::now());
        mailbox.on_mail(mail(2, 0, &[]), now).unwrap();
        queued(&mut mailbox, "late", 1);
        assert_eq!(decided(&mut mailbox, "late"), "pending");
        mailbox.on_mail(mail(2, 0, &[]), now).unwrap();
        assert!(decided(&mut mailbox, "late").contains("has closed the box"));
    }

    #[test]
    fn one_task_collects_while_somebody_waits() {
        let mut mailbox = mailbox(&["a", "b"]);
        assert!(queued(&mut mailbox, "a", 1), "somebody has to begin");
        assert!(!queued(&mut mailbox, "b", 1), "somebody does already");
        mailbox.forget(b"a");
        assert!(mailbox.collect(b"box", Duration::ZERO).is_some());
        mailbox.forget(b"b");
        assert!(mailbox.collect(b"box", Duration::ZERO).is_none());
        mailbox.enter(&name("c")).unwrap();
        assert!(queued(&mut mailbox, "c", 1), "that task has ended");
    }

    #[test]
    fn one_that_is_closed_ends_what_is_under_way_and_names_it() {
        let mut mailbox = mailbox(&["a"]);
        let names = mailbox.close().unwanted;
        assert_eq!(names.len(), 1);
        assert_eq!(decided(&mut mailbox, "a"), "Err(Closed)");
        assert!(mailbox.enter(&name("b")).is_err());
    }

    #[test]
    fn the_end_of_a_wait_and_an_error_are_told_as_such() {
        let (mut mailbox, now) = (mailbox(&["a", "b", "c"]), BootInstant::now());
        let refused = letter(2, "b", "refused", &[("error", text("DEADLOCK x"))]);
        let letters = [letter(1, "a", "denied", &[]), refused];
        mailbox.on_mail(mail(9, 0, &letters), now).unwrap();
        assert_eq!(decided(&mut mailbox, "a"), "Ok(nil)");
        assert_eq!(decided(&mut mailbox, "b"), "Ok((DEADLOCK x))");
        mailbox.fail(&Err(NoReply::Closed));
        assert!(decided(&mut mailbox, "c").starts_with("Err"));
        assert!(mailbox.on_mail(Reply::Nil, now).is_err());
    }
}
