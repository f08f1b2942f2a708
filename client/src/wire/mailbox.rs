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
const MOST_FAILURES: u32 = 3;

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
            // A script runs. The boxes outlive it.
            Ok(Reply::Error(line)) if line.starts_with("BUSY ") => return Delivered::default(),
            Ok(Reply::Error(line)) => Err(NoReply::NoLetters(line)),
            Ok(reply) => match self.on_mail(reply, sent) {
                Ok(delivered) => {
                    self.failures = 0;
                    return delivered;
                }
                Err(error) => Err(NoReply::NoLetters(format!("ERR {error}"))),
            },
            Err(
                gone @ (NoReply::NoLetters(_)
                | NoReply::RuntimeGone
                | NoReply::Closed
                | NoReply::Forked),
            ) => Err(gone),
            // Again, on a new connection at last: the boxes outlive the old one, which may be silent for more calls until then.
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
mod tests;
