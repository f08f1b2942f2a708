//! Requests that wait: one connection to a server collects the letters that decide them, however many there are.
//!
//! A request is entered before it is sent, because its letter may overtake its reply. Every call of `LOCK.MAIL` says which box
//! it has read. If the reply comes from another box, what was queued in the earlier one waits no more, and is asked for anew.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use tokio::sync::oneshot;

use crate::error::{Error, Failed};
use crate::link::{Link, Reply};
use crate::name::{Bytes, random_uuid};
use crate::request;
use crate::retry::Tries;
use crate::settings::Source;
use crate::sync::lock;
use crate::time::BootInstant;
use crate::token::Token;

/// How many names of a box are tried before its node counts as one without slots.
const NAMES: usize = 2_000;

/// What a letter says: a token, and since when at the earliest it is held.
type Decision = Result<(Token, BootInstant), Failed>;

/// The box of one client at one server.
pub(crate) struct Mail {
    link: Arc<Link>,
    /// What does not wait for letters.
    commands: Arc<Link>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    mailbox: Option<Bytes>,
    since: Option<i64>,
    /// The number of the last letter.
    read: i64,
    requests: BTreeMap<Bytes, Pending>,
    is_collected: bool,
}

/// A request without an answer.
struct Pending {
    /// The box that it waits in, and when the client has learned that.
    queued: Option<(i64, BootInstant)>,
    decided: oneshot::Sender<Decision>,
}

/// A request in the table. Dropped, it is forgotten.
pub(crate) struct Entry {
    mail: Arc<Mail>,
    owner: Bytes,
    decided: oneshot::Receiver<Decision>,
}

impl Mail {
    pub(crate) fn new(link: Arc<Link>, commands: Arc<Link>) -> Arc<Mail> {
        let state = Mutex::default();
        Arc::new(Mail {
            link,
            commands,
            state,
        })
    }

    /// The name of the box. In a cluster this node has its slot, which is that of a key only by chance: so it mostly stays when a key's slot moves.
    pub(crate) fn mailbox(&self, is_here: impl Fn(&[u8]) -> bool) -> Bytes {
        let random = || Bytes::from(random_uuid().to_string().into_bytes());
        let name = || {
            let mut names = (0..NAMES).map(|_| random());
            names.find(|name| is_here(name)).unwrap_or_else(random)
        };
        lock(&self.state).mailbox.get_or_insert_with(name).clone()
    }

    /// Enters a request that is about to be sent.
    pub(crate) fn enter(self: &Arc<Self>, owner: &Bytes) -> Entry {
        let (sender, decided) = oneshot::channel();
        let pending = Pending {
            queued: None,
            decided: sender,
        };
        lock(&self.state).requests.insert(owner.clone(), pending);
        Entry {
            mail: self.clone(),
            owner: owner.clone(),
            decided,
        }
    }

    /// Ends all requests.
    pub(crate) fn fail_all(&self, error: &Error) {
        let requests = std::mem::take(&mut lock(&self.state).requests);
        for request in requests.into_values() {
            let _ = request.decided.send(Err(Failed::Unknown(error.clone())));
        }
    }

    /// Collects letters until nobody waits.
    async fn collect(self: Arc<Self>) {
        let mut tries = Tries::new(None, BootInstant::now());
        while let Some(command) = self.next_call() {
            let limit = self.letters().saturating_add(self.link.settings.reply);
            match self.link.call(&command, limit).await {
                Ok(letters) => {
                    tries = Tries::new(None, BootInstant::now());
                    self.deliver(letters);
                }
                Err(failed) => {
                    self.fail(&failed.error(Error::Closed));
                    self.link.runtime.sleep(tries.pause()).await;
                }
            }
        }
    }

    /// What collects the next letters; `None` once nobody waits.
    fn next_call(&self) -> Option<Cmd> {
        let mut state = lock(&self.state);
        state.is_collected = state.requests.values().any(|it| it.queued.is_some());
        let mut command = redis::cmd("LOCK.MAIL");
        command.arg(state.mailbox.as_deref()?);
        if let Some(since) = state.since {
            command.arg("AFTER").arg(since).arg(state.read);
        }
        command.arg("WAIT").arg(self.letters().as_millis() as u64);
        state.is_collected.then_some(command)
    }

    /// How long one call waits for letters. A server of a quorum that hangs is noticed soon: another one takes its place.
    fn letters(&self) -> Duration {
        let (shortest, longest) = (Duration::from_millis(100), Duration::from_secs(1));
        let reply = self.link.settings.reply;
        reply.saturating_mul(2).clamp(shortest, longest)
    }

    /// The letters could not be collected. Requests keep waiting while a server is away whose place no other can take.
    fn fail(&self, error: &Error) {
        match error {
            // The box is not this server's any more, or will not be soon.
            error if error.is_redirection() => lock(&self.state).mailbox = None,
            Error::Refused { code, .. } if code == "UNBLOCKED" => return,
            error if error.passes() && matches!(self.link.settings.source, Source::Server(_)) => {
                return;
            }
            _ => {}
        }
        self.fail_all(error);
    }

    fn deliver(&self, Reply { value, sent }: Reply) {
        let letters = <(i64, u64, Vec<HashMap<String, Value>>)>::from_redis_value(value);
        let Ok((since, waited, letters)) = letters else {
            return self.fail(&Error::unexpected(&"letters that are none"));
        };
        // The server's clock may have run faster than this one.
        let written = sent + Duration::from_millis(waited - waited / 100);
        let (mut decided, mut unwanted) = (Vec::new(), Vec::new());
        let mut state = lock(&self.state);
        if state.since.replace(since) != Some(since) {
            state.read = 0;
        }
        for mut letter in letters {
            let number = take(&mut letter, "number").filter(|number| *number > state.read);
            let Some(number) = number else { continue };
            state.read = number;
            let owner: Vec<u8> = take(&mut letter, "owner").unwrap_or_default();
            let key: Option<Vec<u8>> = take(&mut letter, "key");
            let decision = decision(letter, self.link.server(), written);
            match state.requests.remove(owner.as_slice()) {
                Some(request) => decided.push((request.decided, decision)),
                // It was given up, and the server may have refused its leave while it refused all writes.
                None if decision.is_ok() => unwanted.extend(key.zip(Some(owner))),
                None => {}
            }
        }
        // What was queued in an earlier box waits no more, or was granted and given back.
        let is_gone = |request: &Pending| match request.queued {
            Some((queued, learned)) => queued != since && learned <= sent,
            None => false,
        };
        let gone = state.requests.iter().filter(|(_, it)| is_gone(it));
        let gone: Vec<Bytes> = gone.map(|(owner, _)| owner.clone()).collect();
        let gone = gone.iter().map(|owner| state.requests.remove(owner));
        let gone: Vec<_> = gone.collect();
        drop(state);
        // A task that wakes may lock the table to enter another request.
        for (request, decision) in decided {
            let _ = request.send(decision);
        }
        drop(gone);
        for (key, owner) in unwanted {
            let leave = request::leave_for_good(&key.into(), &owner.into());
            let link = self.commands.clone();
            self.link.runtime.spawn(async move {
                drop(link.call(&leave, link.settings.reply).await);
            });
        }
    }
}

impl Entry {
    /// Waits for what is decided of the request, which is queued in the box with this number.
    pub(crate) async fn decision(mut self, since: i64) -> Decision {
        if self.set_queued(since) {
            let runtime = &self.mail.link.runtime;
            runtime.spawn(self.mail.clone().collect());
        }
        let is_gone = Error::of_line("", "UNBLOCKED", "the server has closed the box");
        let decided = (&mut self.decided).await;
        decided.unwrap_or(Err(Failed::Unknown(is_gone)))
    }

    /// Notes the box that it waits in. Returns whether a task has to be started that collects its letters.
    fn set_queued(&self, since: i64) -> bool {
        let mut state = lock(&self.mail.state);
        let Some(request) = state.requests.get_mut(&self.owner) else {
            return false;
        };
        request.queued = Some((since, BootInstant::now()));
        !std::mem::replace(&mut state.is_collected, true)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.mail.state).requests.remove(&self.owner);
    }
}

/// What a letter says that was written by `written` at the latest.
fn decision(mut letter: HashMap<String, Value>, server: &str, written: BootInstant) -> Decision {
    match take::<String>(&mut letter, "result").as_deref() {
        Some("granted") => {
            let (token, age) = (take(&mut letter, "token"), take(&mut letter, "age"));
            let (Some(token), Some(age)) = (token, age) else {
                return Err(Failed::Unknown(Error::unexpected(&letter)));
            };
            let granted = written.back(Duration::from_millis(age));
            Ok((Token::new(token), granted))
        }
        Some("refused") => {
            let line: String = take(&mut letter, "error").unwrap_or_default();
            let (code, message) = line.split_once(' ').unwrap_or((&line, ""));
            Err(Failed::Unknown(Error::of_line(server, code, message)))
        }
        _ => Err(Failed::Denied),
    }
}

fn take<T: FromRedisValue>(letter: &mut HashMap<String, Value>, field: &str) -> Option<T> {
    T::from_redis_value(letter.remove(field)?).ok()
}
