//! The thread that asks one server again and again.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use super::ask::{self, Answer, View};
use super::dial::{Address, Link};
use super::message::Message;
use crate::model::{Broken, LockId, Report, When};
use crate::options::Asking;

/// Messages to the thread of a server.
#[derive(Debug, Clone)]
pub(super) enum Work {
    /// Ask for this lock, too.
    Watch(Option<LockId>),
    /// Only locks that have this in their names.
    Filter(String),
    /// End a hold, now or with its lease: on this lock, of this owner, by this token.
    Break(LockId, Vec<u8>, u64, When),
}

/// One server.
pub(super) struct Poller {
    pub(super) address: Address,
    pub(super) asking: Asking,
    pub(super) began: Instant,
    pub(super) view: View,
    pub(super) work: Receiver<Work>,
    pub(super) outbox: Sender<Message>,
}

impl Poller {
    /// Asks until nobody receives the answers any more: then it is None.
    pub(super) fn run(mut self) -> Option<()> {
        let mut link = None;
        loop {
            let due = Instant::now() + self.asking.interval;
            self.ask(&mut link)?;
            let left = due.saturating_duration_since(Instant::now());
            match self.work.recv_timeout(left) {
                Ok(work) => self.do_all(work, &mut link)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Handles this message and those that came meanwhile; None if nobody receives the answers.
    fn do_all(&mut self, work: Work, link: &mut Option<Link>) -> Option<()> {
        let mut next = Some(work);
        while let Some(work) = next {
            match work {
                Work::Watch(lock) => self.view.opened = lock,
                Work::Filter(filter) => self.view.filter = filter,
                Work::Break(lock, owner, token, when) => {
                    let outcome = self.break_hold(link, &lock, &owner, token, when);
                    let at = self.began.elapsed();
                    let broken = Report::Broken {
                        at,
                        lock,
                        owner,
                        outcome,
                    };
                    self.outbox.send(Message::Report(broken)).ok()?;
                }
            }
            next = self.work.try_recv().ok();
        }
        Some(())
    }

    /// Asks once, and sends the answer; None if nobody receives it.
    fn ask(&self, link: &mut Option<Link>) -> Option<()> {
        let node = self.address.name();
        let answer = self.try_ask(link);
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

    fn try_ask(&self, link: &mut Option<Link>) -> Result<Answer, String> {
        let link = self.connected(link)?;
        ask::ask(link, &self.address, self.asking, &self.view)
    }

    fn break_hold(
        &self,
        link: &mut Option<Link>,
        lock: &LockId,
        owner: &[u8],
        token: u64,
        when: When,
    ) -> Broken {
        let open = match self.connected(link) {
            Ok(open) => open,
            Err(error) => return Broken::Refused(error),
        };
        match ask::break_hold(open, lock, owner, token, when, self.asking) {
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
