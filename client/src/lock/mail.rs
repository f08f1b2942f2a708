//! Collects the letters of one server process while somebody waits for one: over one connection, whatever the number of tasks.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::lock::Core;
use crate::lock::mailboxes::PeerMailbox;
use crate::net::{Pending, Route, task};
use crate::value::{BootInstant, Error, lock};
use crate::wire::{Command, Decision, Name, Reply, Verb};

/// How long one call waits for letters. A connection that has died is found out after that, and the time of an answer.
const WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

impl Core {
    /// An acquisition under this name is about to be asked for where the route leads.
    pub(super) fn enter(&self, name: &Name, route: &Route) -> Result<Entry, Error> {
        let mut all = lock(&self.mailboxes);
        if all.is_closed {
            return Err(Error::Closed);
        }
        let mailbox = match all.by_peer.get(&route.peer.id) {
            Some(mailbox) => mailbox.clone(),
            None => {
                all.forget_unused();
                let new = PeerMailbox::new(&self.endpoint, route.peer.clone(), &name.key);
                all.by_peer.insert(route.peer.id, new.clone());
                new
            }
        };
        drop(all);
        lock(&mailbox.mailbox).enter(name)?;
        let owner = name.owner.clone();
        Ok(Entry { mailbox, owner })
    }
}

impl PeerMailbox {
    /// Asks for letters, as long as somebody waits.
    fn ask(&self) -> Option<(Pending, BootInstant)> {
        let now = BootInstant::now();
        let command = lock(&self.mailbox).collect(&self.name, WAIT)?;
        Some((self.peer.send_mail(&command, WAIT, now), now))
    }
}

async fn collect(core: Arc<Core>, mut collecting: Collecting) {
    let own = collecting.mailbox.clone();
    while let Some((pending, sent)) = own.ask() {
        let answer = pending.await;
        let route = Route::to(own.peer.clone());
        let is_elsewhere = core.endpoint.redirected(&route, &answer).is_some();
        if is_elsewhere {
            // The next one is another.
            lock(&core.mailboxes).by_peer.remove(&own.peer.id);
        }
        let (delivered, failures) = {
            let mut mailbox = lock(&own.mailbox);
            let delivered = mailbox.on_answer(answer, sent, is_elsewhere);
            (delivered, mailbox.failures)
        };
        delivered.wakers.into_iter().for_each(Waker::wake);
        for name in delivered.unwanted.iter().flat_map(Name::each) {
            // Sent once: the acquisition that gave it up repeats its own LEAVE until the server answers.
            let command = Command::Lock {
                name: &name,
                verb: &Verb::LeaveForGood,
                wait: None,
            };
            drop(route.send(&command, BootInstant::now()));
        }
        if failures > 1 {
            tokio::time::sleep(PAUSE).await;
        }
    }
    collecting.is_done = true;
    drop((collecting, own));
    lock(&core.mailboxes).forget_unused();
}

/// A box while a task collects its letters. If the task ends early, with its runtime, all requests that wait there fail.
struct Collecting {
    mailbox: Arc<PeerMailbox>,
    is_done: bool,
}

impl Drop for Collecting {
    fn drop(&mut self) {
        if !self.is_done {
            let wakers = lock(&self.mailbox.mailbox).abandon();
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// An acquisition that is under way.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) mailbox: Arc<PeerMailbox>,
    owner: Arc<[u8]>,
}

impl Entry {
    /// The request waits, by this reply of the server.
    pub(super) fn queued(&self, core: &Arc<Core>, reply: &Reply) {
        let begins = lock(&self.mailbox.mailbox).queued(&self.owner, reply);
        if begins {
            let collecting = Collecting {
                mailbox: self.mailbox.clone(),
                is_done: false,
            };
            task::spawn(&core.runtime, collect(core.clone(), collecting));
        }
    }

    /// What was decided of it.
    pub(super) fn poll(&self, waker: &Waker) -> Poll<Decision> {
        lock(&self.mailbox.mailbox).poll(&self.owner, waker)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.mailbox.mailbox).forget(&self.owner);
    }
}
