//! The client's side of a box: who waits by mail, and the letters that decide.
//!
//! A name is entered before its request is sent, because a letter may overtake the reply. Letters are told again until they
//! are forgotten, so one that was read is not read again: what was decided then may have been given back since.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::proto::{Answer, Command, Failure, Fields, Name, Read, Reply, unexpected};
use crate::value::{BootInstant, ConnectionError, Error};

/// What was decided of a request that waits: as if it had been answered so by one that was sent then.
pub(crate) type Decision = (Answer, BootInstant);

/// The box is gone: what waited there waits no more, or was granted and given back.
fn forgotten() -> Answer {
    let error = "the server has forgotten what waited there";
    Err(Failure::Unknown(ConnectionError::new(error)))
}

#[derive(Debug, Default)]
struct Waiting {
    /// The box that its request was put in, once that is known.
    since: Option<u64>,
    decision: Option<Decision>,
    waker: Option<Waker>,
}

/// Whom to wake, and what was granted to nobody who wants it any more.
type Told = (Vec<Waker>, Vec<Name>);

#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    since: Option<u64>,
    /// The last letter read.
    read: u64,
    waiting: BTreeMap<Arc<[u8]>, Waiting>,
    /// Somebody's request may have been put in another box than this.
    is_doubted: bool,
    is_collected: bool,
    /// How many calls have failed in a row.
    pub(crate) failures: u32,
}

impl Mailbox {
    /// Somebody is about to ask under this name.
    pub(crate) fn enter(&mut self, owner: Arc<[u8]>) {
        self.waiting.insert(owner, Waiting::default());
    }

    /// The request waits, in the box of this reply. Whether somebody has to begin to collect.
    pub(crate) fn queued(&mut self, owner: &[u8], reply: &Reply) -> bool {
        if let Some(waiting) = self.waiting.get_mut(owner)
            && let Reply::Array(items) = reply
            && let Some(Reply::Int(since)) = items.get(1)
        {
            waiting.since = Some(since.unsigned_abs());
            self.is_doubted |= waiting.since != self.since;
        }
        !std::mem::replace(&mut self.is_collected, true)
    }

    /// Nobody waits under this name any more.
    pub(crate) fn forget(&mut self, owner: &[u8]) {
        self.waiting.remove(owner);
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
        self.is_collected = !self.waiting.is_empty();
        let after = self.since.map(|since| (since, self.read));
        let command = Command::Mail(name, after, wait.as_millis() as u64);
        self.is_collected.then_some(command)
    }

    /// The answer to what was sent at `sent`. `is_elsewhere`: the box is not served there any more.
    pub(crate) fn on_answer(
        &mut self,
        answer: Answer,
        sent: BootInstant,
        is_elsewhere: bool,
    ) -> Told {
        self.failures += 1;
        let told = match answer {
            Ok(Reply::Error(line)) if is_elsewhere || line.starts_with("READONLY") => forgotten(),
            // Another call of ours is newer, or its connection was told to give up.
            Ok(Reply::Error(line)) if line.starts_with("UNBLOCKED") => return Told::default(),
            Ok(Reply::Error(line)) => Ok(Reply::Error(line)),
            Ok(reply) => match self.on_mail(reply, sent) {
                Ok(told) => {
                    self.failures = 0;
                    return told;
                }
                Err(error) => Ok(Reply::Error(format!("ERR {error}"))),
            },
            Err(Failure::Gone) => Err(Failure::Gone),
            // Once more on a new connection: the boxes outlive the old one.
            Err(_) if self.failures == 1 => return Told::default(),
            // What was asked for waits there, or has been granted.
            Err(Failure::NotSent(error) | Failure::Unknown(error)) => Err(Failure::Unknown(error)),
        };
        (self.fail(&told), Vec::new())
    }

    fn on_mail(&mut self, reply: Reply, sent: BootInstant) -> Result<Told, Error> {
        let (since, waited, letters) = envelope(reply)?;
        // The server has measured that, and its clock may be a hundredth too fast.
        let told = sent + (waited - waited / 100);
        let (mut wakers, mut unwanted) = (Vec::new(), Vec::new());
        if self.since != Some(since) {
            (self.since, self.read, self.is_doubted) = (Some(since), 0, true);
        }
        for mut letter in letters {
            let number = letter.get("number")?;
            if number <= self.read {
                continue;
            }
            self.read = number;
            let mut bytes = |name| letter.get::<Vec<u8>>(name).map(Arc::from);
            let (key, owner) = (bytes("key")?, bytes("owner")?);
            let decision = decision(&mut letter, told)?;
            match self.waiting.get_mut(&owner) {
                Some(waiting) => decide(waiting, decision, &mut wakers),
                None if matches!(decision.0, Ok(Reply::Int(_))) => {
                    unwanted.push(Name { key, owner });
                }
                None => {}
            }
        }
        // Not with every letter: there may be tens of thousands who wait.
        if std::mem::take(&mut self.is_doubted) {
            for waiting in self.waiting.values_mut() {
                if waiting.since.is_some_and(|it| it != since) {
                    decide(waiting, (forgotten(), sent), &mut wakers);
                }
            }
        }
        Ok((wakers, unwanted))
    }

    /// Nobody collects any more. Returns whom to wake.
    pub(crate) fn abandon(&mut self) -> Vec<Waker> {
        self.is_collected = false;
        self.fail(&Err(Failure::Gone))
    }

    /// What everybody who waits is told. Returns whom to wake.
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
    Ok((u64::read(since)?, Read::read(waited)?, Read::read(letters)?))
}

/// What a letter says; `told` is when it was written at the earliest, by this machine's clock.
fn decision(letter: &mut Fields, told: BootInstant) -> Result<Decision, Error> {
    let answer = match letter.get::<Vec<u8>>("result")?.as_slice() {
        b"granted" => {
            let answer = Reply::Int(letter.get::<u64>("token")? as i64);
            return Ok((Ok(answer), told.back(letter.get("age")?)));
        }
        b"refused" => {
            let line: Vec<u8> = letter.get("error")?;
            Reply::Error(String::from_utf8_lossy(&line).into_owned())
        }
        _ => Reply::Nil,
    };
    Ok((Ok(answer), told))
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

    fn mailbox(owners: &[&str]) -> Mailbox {
        let mut mailbox = Mailbox::default();
        for owner in owners {
            mailbox.enter(owner.as_bytes().into());
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
        let (_, unwanted) = mailbox.on_mail(mail(1, 0, &letters), now).unwrap();
        let [name] = &unwanted[..] else { panic!() };
        assert_eq!(name.who(), (b"k".as_slice(), b"b".as_slice()));
        assert_eq!(decided(&mut mailbox, "a"), "Ok(5)");
        mailbox.forget(b"a");
        // The reply that forgets them is lost: they are told again.
        let (_, unwanted) = mailbox.on_mail(mail(1, 0, &letters), now).unwrap();
        assert!(unwanted.is_empty());
        mailbox.enter(b"c".as_slice().into());
        assert!(matches!(
            mailbox.collect(b"box", Duration::ZERO),
            Some(Command::Mail(_, Some((1, 6)), _))
        ));
    }

    #[test]
    fn a_new_box_ends_the_wait_of_those_who_were_in_the_old_one_and_of_nobody_else() {
        let (mut mailbox, now) = (mailbox(&["old", "new", "asking"]), BootInstant::now());
        for (owner, since) in [("old", 1), ("new", 2)] {
            let reply = Reply::Array(vec![text("QUEUED"), Reply::Int(since)]);
            mailbox.queued(owner.as_bytes(), &reply);
        }
        mailbox.on_mail(mail(2, 0, &[]), now).unwrap();
        assert!(decided(&mut mailbox, "old").contains("forgotten"));
        assert_eq!(decided(&mut mailbox, "new"), "pending");
        assert_eq!(decided(&mut mailbox, "asking"), "pending");
    }

    #[test]
    fn the_end_of_a_wait_and_an_error_are_told_as_such() {
        let (mut mailbox, now) = (mailbox(&["a", "b", "c"]), BootInstant::now());
        let refused = letter(2, "b", "refused", &[("error", text("DEADLOCK x"))]);
        let letters = [letter(1, "a", "denied", &[]), refused];
        mailbox.on_mail(mail(9, 0, &letters), now).unwrap();
        assert_eq!(decided(&mut mailbox, "a"), "Ok(nil)");
        assert_eq!(decided(&mut mailbox, "b"), "Ok((DEADLOCK x))");
        mailbox.fail(&Err(Failure::Gone));
        assert!(decided(&mut mailbox, "c").starts_with("Err"));
        assert!(mailbox.on_mail(Reply::Nil, now).is_err());
    }
}
