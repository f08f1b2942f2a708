//! Collects the letters of one server process, while somebody waits for one: one connection, whatever the number of tasks.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use crate::net::Pending;
use crate::net::peer::{Peer, Route};
use crate::net::server::Server;
use crate::net::task;
use crate::proto::{Decision, Reply, Verb, slots};
use crate::run::core::{Core, Mail};
use crate::value::random;
use crate::value::{BootInstant, Lease, lock};

/// How long one call waits for letters. A connection that has died is found out after that, and the time of an answer.
const WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

impl Core {
    /// The letters of a process that serves `key`.
    pub(crate) fn mail(&self, server: usize, peer: &Arc<Peer>, key: &[u8]) -> Arc<Mail> {
        let new = || Mail::new(self.servers[server].clone(), peer.clone(), key);
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

async fn collect(core: Arc<Core>, server: usize, mut end: End) {
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
            let verb = Verb::Leave { late: true };
            drop(core.leave_at(server, &name, Lease::DEFAULT, verb));
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
    /// The request waits, by this reply of that server: what is decided of it.
    pub(crate) async fn decision(
        &self,
        core: &Arc<Core>,
        server: usize,
        queued: &Reply,
    ) -> Decision {
        let (mail, is_done) = (self.mail.clone(), false);
        let begins = lock(&mail.mailbox).queued(&self.owner, queued);
        if begins {
            let collecting = collect(core.clone(), server, End { mail, is_done });
            task::spawn(&core.runtime, collecting);
        }
        poll_fn(|context| lock(&self.mail.mailbox).poll(&self.owner, context.waker())).await
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.mail.mailbox).forget(&self.owner);
    }
}
