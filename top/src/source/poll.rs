//! The thread that asks one server again and again.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use super::ask::{self, Answer};
use super::dial::{Address, Link};
use super::message::Message;
use crate::model::{Broken, LockId, Report};
use crate::options::Asking;

/// What the thread of a server is told.
#[derive(Debug, Clone)]
pub(super) enum Work {
    /// Look at this lock, too.
    Watch(Option<LockId>),
    /// End a hold: on this lock, of this owner, by this token.
    Break(LockId, Vec<u8>, u64),
}

/// One server.
pub(super) struct Poller {
    pub(super) address: Address,
    pub(super) asking: Asking,
    pub(super) began: Instant,
    pub(super) opened: Option<LockId>,
    pub(super) work: Receiver<Work>,
    pub(super) outbox: Sender<Message>,
}

impl Poller {
    /// Asks until nobody wants to hear of it any more.
    pub(super) fn run(mut self) {
        let mut link = None;
        loop {
            let due = Instant::now() + self.asking.interval;
            if self.look(&mut link).is_none() {
                return;
            }
            let left = due.saturating_duration_since(Instant::now());
            match self.work.recv_timeout(left) {
                Ok(Work::Watch(lock)) => self.opened = lock,
                Ok(Work::Break(lock, owner, token)) => {
                    let outcome = self.break_hold(&mut link, &lock, &owner, token);
                    let at = self.began.elapsed();
                    let broken = Report::Broken {
                        at,
                        lock,
                        owner,
                        outcome,
                    };
                    if self.outbox.send(Message::Report(broken)).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Asks once, and tells; None if nobody listens.
    fn look(&self, link: &mut Option<Link>) -> Option<()> {
        let node = self.address.name();
        let answer = self.try_look(link);
        let at = self.began.elapsed();
        let report = match answer {
            Ok(Answer { sample, members }) => {
                if let Some(members) = members {
                    self.outbox
                        .send(Message::Members(node.clone(), members))
                        .ok()?;
                }
                let sample = Box::new(sample);
                Report::Sample { node, at, sample }
            }
            Err(why) => {
                *link = None;
                Report::Silent { node, at, why }
            }
        };
        self.outbox.send(Message::Report(report)).ok()
    }

    fn try_look(&self, link: &mut Option<Link>) -> Result<Answer, String> {
        let link = self.connected(link)?;
        ask::look(link, &self.address, self.asking, self.opened.as_ref())
    }

    fn break_hold(
        &self,
        link: &mut Option<Link>,
        lock: &LockId,
        owner: &[u8],
        token: u64,
    ) -> Broken {
        let open = match self.connected(link) {
            Ok(open) => open,
            Err(error) => return Broken::Refused(error),
        };
        match ask::break_hold(open, lock, owner, token, self.asking) {
            Ok(outcome) => outcome,
            Err(error) => {
                *link = None;
                Broken::Unknown(error)
            }
        }
    }

    fn connected<'a>(&self, link: &'a mut Option<Link>) -> Result<&'a mut Link, String> {
        match link {
            Some(link) => Ok(link),
            None => Ok(link.insert(self.address.open(self.asking.timeout)?)),
        }
    }
}
