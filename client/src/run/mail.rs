//! Collects the letters of one server process, while somebody waits for one: one connection, whatever the number of tasks.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::net::Pending;
use crate::net::peer::{Peer, Route};
use crate::net::server::Server;
use crate::net::task;
use crate::proto::{Command, Decision, Reply, Verb, slots};
use crate::run::core::{Core, Mail};
use crate::value::random;
use crate::value::{BootInstant, lock};

/// How long one call waits for letters. A connection that has died is found out after that, and the time of an answer.
const WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

impl Core {
    /// The letters of a process that serves `key`.
    pub(crate) fn mail(&self, server: &Arc<Server>, peer: &Arc<Peer>, key: &[u8]) -> Arc<Mail> {
        let new = || Mail::new(server.clone(), peer.clone(), key);
        let mut all = lock(&self.mail);
        all.entry(peer.id).or_insert_with(new).clone()
    }
}

impl Mail {
    /// A box at a process that serves `key`.
    fn new(server: Arc<Server>, peer: Arc<Peer>, key: &[u8]) -> Arc<Mail> {
        let uuid = random::uuid();
        let name = match server.is_cluster() {
            // Routed like a key: to where this one is.
            true => format!("{{{}}}{uuid}", slots::tag(slots::slot(key))),
            false => uuid.to_string(),
        };
        Arc::new(Mail {
            server,
            peer,
            name: name.into_bytes().into(),
            mailbox: Mutex::default(),
        })
    }

    /// Somebody is about to ask under this name.
    pub(crate) fn enter(self: &Arc<Self>, owner: Arc<[u8]>) -> Entry {
        lock(&self.mailbox).enter(owner.clone());
        Entry {
            mail: self.clone(),
            owner,
        }
    }

    fn ask(&self) -> Option<(Pending, BootInstant)> {
        let now = BootInstant::now();
        let command = lock(&self.mailbox).collect(&self.name, WAIT)?;
        Some((self.peer.send_mail(&command, WAIT, now), now))
    }
}

async fn collect(core: Arc<Core>, mut end: End) {
    let mail = end.mail.clone();
    while let Some((pending, sent)) = mail.ask() {
        let answer = pending.await;
        let route = Route::to(mail.peer.clone());
        let is_elsewhere = mail.server.redirected(&route, &answer).is_some();
        if is_elsewhere {
            // The next one is another.
            lock(&core.mail).remove(&mail.peer.id);
        }
        let ((wakers, unwanted), failures) = {
            let mut mailbox = lock(&mail.mailbox);
            let told = mailbox.on_answer(answer, sent, is_elsewhere);
            (told, mailbox.failures)
        };
        wakers.into_iter().for_each(Waker::wake);
        for name in unwanted {
            // Whoever has given it up says that, too, until it is answered.
            let leave = Verb::Leave { late: true };
            let command = Command::Of(name.who(), &leave, None);
            drop(route.send(&command, BootInstant::now()));
        }
        if failures > 1 {
            tokio::time::sleep(PAUSE).await;
        }
    }
    end.is_done = true;
}

/// However the collecting ends, with its runtime too, nobody waits on for a letter.
struct End {
    mail: Arc<Mail>,
    is_done: bool,
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.is_done {
            let wakers = lock(&self.mail.mailbox).abandon();
            wakers.into_iter().for_each(Waker::wake);
        }
    }
}

/// Somebody who waits, or is about to.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) mail: Arc<Mail>,
    owner: Arc<[u8]>,
}

impl Entry {
    /// The request waits, by this reply of the server.
    pub(crate) fn queued(&self, core: &Arc<Core>, reply: &Reply) {
        let (mail, is_done) = (self.mail.clone(), false);
        let begins = lock(&mail.mailbox).queued(&self.owner, reply);
        if begins {
            task::spawn(&core.runtime, collect(core.clone(), End { mail, is_done }));
        }
    }

    /// What is decided of it.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Decision> {
        lock(&self.mail.mailbox).poll(&self.owner, waker)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.mail.mailbox).forget(&self.owner);
    }
}
