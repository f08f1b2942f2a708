//! Collects the letters of one server process, while somebody waits for one: one connection, whatever the number of tasks.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use crate::net::peer::{Peer, Route};
use crate::net::server::Server;
use crate::net::task;
use crate::proto::{Answer, Decision, Failure, Mailbox, Name, Reply, Unwanted, forgotten, slots};
use crate::run::{Janitor, Leave};
use crate::value::random;
use crate::value::{BootInstant, Lease, lock};

/// How long one call waits for letters. A connection that has died is found out after that, and the time of an answer.
const WAIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Mail {
    server: Arc<Server>,
    peer: Arc<Peer>,
    janitor: Arc<Janitor>,
    /// The box's name.
    pub(crate) name: Box<[u8]>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    mailbox: Mailbox,
    is_collecting: bool,
    is_over: bool,
}

impl Mail {
    /// A box at a process that serves `key`.
    pub(crate) fn new(
        server: Arc<Server>,
        peer: Arc<Peer>,
        janitor: Arc<Janitor>,
        key: &[u8],
    ) -> Arc<Mail> {
        let uuid = random::uuid();
        let name = match server.is_cluster() {
            // Routed like a key: to where this one is.
            true => format!("{{{}}}{uuid}", slots::tag(slots::slot(key))),
            false => uuid.to_string(),
        };
        let name: Box<[u8]> = name.into_bytes().into();
        let state = State {
            mailbox: Mailbox::new(name.clone()),
            is_collecting: false,
            is_over: false,
        };
        Arc::new(Mail {
            server,
            peer,
            janitor,
            name,
            state: Mutex::new(state),
        })
    }

    /// The box is not served there any more.
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.state).is_over
    }

    /// Somebody is about to ask under this name.
    pub(crate) fn enter(self: &Arc<Self>, owner: Arc<[u8]>) -> Entry {
        lock(&self.state).mailbox.enter(owner.clone());
        Entry {
            mail: self.clone(),
            owner,
        }
    }

    async fn collect(end: End) {
        let mail = &end.0;
        let mut failures = 0;
        while let Some((pending, sent)) = mail.ask() {
            let answer = pending.await;
            for (key, owner) in mail.read(answer, sent, &mut failures) {
                // Granted to nobody who wants it any more.
                let (key, owner) = (key.into(), owner.into());
                let (name, lease) = (Name { key, owner }, Lease::DEFAULT);
                let (janitor, how) = (&mail.janitor, (false, true));
                drop(Leave::new(janitor, &mail.server, name, lease, how));
            }
            if failures > 1 {
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// The next call; `None` once nobody waits.
    fn ask(&self) -> Option<(crate::net::Pending, BootInstant)> {
        let mut state = lock(&self.state);
        if state.mailbox.is_idle() || state.is_over {
            state.is_collecting = false;
            return None;
        }
        let now = BootInstant::now();
        let command = state.mailbox.collect(WAIT);
        Some((self.peer.send_mail(&command, WAIT, now), now))
    }

    /// What an answer says. Returns what was granted to nobody.
    fn read(&self, answer: Answer, sent: BootInstant, failures: &mut u32) -> Vec<Unwanted> {
        let route = Route::to(self.peer.clone());
        let is_elsewhere = self.server.redirected(&route, &answer).is_some();
        *failures += 1;
        let told = match answer {
            Ok(Reply::Error(line)) if is_elsewhere || line.starts_with("READONLY") => {
                lock(&self.state).is_over = is_elsewhere;
                forgotten()
            }
            // Another call of ours is newer, or its connection was told to give up.
            Ok(Reply::Error(line)) if line.starts_with("UNBLOCKED") => return Vec::new(),
            Ok(Reply::Error(line)) => Ok(Reply::Error(line)),
            Ok(reply) => match lock(&self.state).mailbox.on_mail(reply, sent) {
                Ok((wakers, unwanted)) => {
                    *failures = 0;
                    wakers.into_iter().for_each(Waker::wake);
                    return unwanted;
                }
                Err(error) => Ok(Reply::Error(format!("ERR {error}"))),
            },
            Err(Failure::Gone) => Err(Failure::Gone),
            // Once more on a new connection: the boxes outlive the old one.
            Err(_) if *failures == 1 => return Vec::new(),
            // What was asked for waits there, or has been granted.
            Err(Failure::NotSent(error) | Failure::Unknown(error)) => Err(Failure::Unknown(error)),
        };
        self.fail(&told);
        Vec::new()
    }

    fn fail(&self, told: &Answer) {
        let wakers = lock(&self.state).mailbox.fail(told);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// However the collecting ends, with its runtime too, nobody waits on.
struct End(Arc<Mail>);

impl Drop for End {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        if state.is_collecting {
            state.is_collecting = false;
            drop(state);
            self.0.fail(&Err(Failure::Gone));
        }
    }
}

/// Somebody who may have to wait; gone with this.
#[derive(Debug)]
pub(crate) struct Entry {
    mail: Arc<Mail>,
    owner: Arc<[u8]>,
}

impl Entry {
    /// The request waits, as this reply says: what is decided of it.
    pub(crate) async fn decision(&self, queued: &Reply) -> Decision {
        let mail = &self.mail;
        let begins = {
            let mut state = lock(&mail.state);
            state.mailbox.queued(&self.owner, queued);
            !std::mem::replace(&mut state.is_collecting, true)
        };
        if begins {
            let runtime = &mail.janitor.runtime;
            task::spawn(runtime, Mail::collect(End(mail.clone())));
        }
        poll_fn(|context| {
            let mut state = lock(&mail.state);
            state.mailbox.poll(&self.owner, context.waker())
        })
        .await
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.mail.state).mailbox.forget(&self.owner);
    }
}
