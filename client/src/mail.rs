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
use crate::request::Name;
use crate::retry::Pause;
use crate::runtime::Runtime;
use crate::settings::{Kind, Settings};
use crate::sync::lock;
use crate::time::{BootInstant, Lease};
use crate::token::Token;

/// What a request that waited got: a token, not before a moment; or it was denied, or may have been granted.
pub(crate) type Decision = Result<(Token, BootInstant), Failed>;

/// The box of one client at one server. Clones share it.
#[derive(Clone)]
pub(crate) struct Mail(Arc<Shares>);

struct Shares {
    link: Link,
    settings: Settings,
    runtime: Runtime,
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
    is_closed: bool,
}

/// A request without an answer.
struct Pending {
    name: Name,
    lease: Lease,
    /// The box that it waits in, and when the client has learned that.
    queued: Option<(i64, BootInstant)>,
    decided: oneshot::Sender<Decision>,
}

/// A request in the table. Dropped, it is forgotten.
pub(crate) struct Entry {
    mail: Mail,
    owner: Bytes,
    decided: oneshot::Receiver<Decision>,
}

impl Mail {
    pub(crate) fn new(link: Link, settings: Settings, runtime: Runtime) -> Mail {
        let state = Mutex::default();
        Mail(Arc::new(Shares {
            link,
            settings,
            runtime,
            state,
        }))
    }

    /// The name of the box. In a cluster its slot is that of a key that this server has.
    pub(crate) fn mailbox(&self, key: &Bytes) -> Bytes {
        let _ = key;
        let tag = || match self.0.settings.servers {
            #[cfg(feature = "cluster")]
            Kind::Cluster => format!("{{{}}}", crate::slot::tag(key)),
            _ => String::new(),
        };
        let name = || format!("{}{}", tag(), random_uuid()).into_bytes().into();
        lock(&self.0.state).mailbox.get_or_insert_with(name).clone()
    }

    /// Enters a request that is about to be sent.
    pub(crate) fn enter(&self, name: &Name, lease: Lease) -> Result<Entry, Error> {
        let (sender, decided) = oneshot::channel();
        let mut state = lock(&self.0.state);
        if state.is_closed {
            return Err(Error::Closed);
        }
        let pending = Pending {
            name: name.clone(),
            lease,
            queued: None,
            decided: sender,
        };
        state.requests.insert(name.owner.clone(), pending);
        Ok(Entry {
            mail: self.clone(),
            owner: name.owner.clone(),
            decided,
        })
    }

    /// Ends all requests, and accepts no more. Returns what they may leave behind.
    pub(crate) fn close(&self) -> Vec<(Name, Lease)> {
        let mut state = lock(&self.0.state);
        state.is_closed = true;
        state.fail_all(&Error::Closed)
    }

    /// What collects the next letters; `None` once nobody waits.
    fn next_call(&self) -> Option<Cmd> {
        let mut state = lock(&self.0.state);
        state.is_collected = state.requests.values().any(|it| it.queued.is_some());
        let mut command = redis::cmd("LOCK.MAIL");
        command.arg(state.mailbox.as_deref()?);
        if let Some(since) = state.since {
            command.arg("AFTER").arg(since).arg(state.read);
        }
        let wait = self.0.settings.letters();
        command.arg("WAIT").arg(wait.as_millis() as u64);
        state.is_collected.then_some(command)
    }

    /// The letters could not be collected. Requests keep waiting while a server is away whose place no other can take.
    fn fail(&self, error: &Error) {
        let mut state = lock(&self.0.state);
        match error {
            // The box is not this server's any more.
            Error::Refused { code, .. } if code == "MOVED" => state.mailbox = None,
            Error::Refused { code, .. } if code == "UNBLOCKED" => return,
            error if error.passes() && self.0.settings.servers == Kind::One => return,
            _ => {}
        }
        state.since = None;
        state.fail_all(error);
    }

    fn deliver(&self, Reply { value, sent }: Reply) {
        type Letters = Vec<HashMap<String, Value>>;
        let Ok((since, waited, letters)) = <(i64, u64, Letters)>::from_redis_value(value) else {
            return self.fail(&Error::unexpected(&"letters that are none"));
        };
        // The server's clock may have run faster than this one.
        let written = sent + Duration::from_millis(waited - waited / 100);
        let mut state = lock(&self.0.state);
        if state.since.replace(since) != Some(since) {
            state.read = 0;
        }
        for mut letter in letters {
            let number = take(&mut letter, "number").filter(|number| *number > state.read);
            let Some(number) = number else { continue };
            state.read = number;
            let owner: Vec<u8> = take(&mut letter, "owner").unwrap_or_default();
            // A request that was given up is not in the table, and its name has been left.
            if let Some(request) = state.requests.remove(owner.as_slice()) {
                let decision = decision(letter, self.0.link.server(), written);
                let _ = request.decided.send(decision);
            }
        }
        // What was queued in an earlier box waits no more, or was granted and given back.
        let is_there = |request: &Pending| match request.queued {
            Some((queued, learned)) => queued == since || learned > sent,
            None => true,
        };
        state.requests.retain(|_, request| is_there(request));
    }
}

impl State {
    /// Ends all requests. Returns what they may leave behind.
    fn fail_all(&mut self, error: &Error) -> Vec<(Name, Lease)> {
        let fail = |request: Pending| {
            let _ = request.decided.send(Err(Failed::Unknown(error.clone())));
            (request.name, request.lease)
        };
        let requests = std::mem::take(&mut self.requests);
        requests.into_values().map(fail).collect()
    }
}

impl Entry {
    /// Waits for what is decided of the request, which is queued in the box with this number.
    pub(crate) async fn decision(&mut self, since: i64) -> Decision {
        if self.set_queued(since) {
            let collector = Collector(Some(self.mail.clone()));
            self.mail.0.runtime.spawn(collector.run());
        }
        let is_gone = Error::of_line("", "UNBLOCKED", "the server has closed the box");
        let decided = (&mut self.decided).await;
        decided.unwrap_or(Err(Failed::Unknown(is_gone)))
    }

    /// Notes the box that it waits in. Returns whether a task has to be started that collects its letters.
    fn set_queued(&self, since: i64) -> bool {
        let mut state = lock(&self.mail.0.state);
        let Some(request) = state.requests.get_mut(&self.owner) else {
            return false;
        };
        request.queued = Some((since, BootInstant::now()));
        !std::mem::replace(&mut state.is_collected, true)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.mail.0.state).requests.remove(&self.owner);
    }
}

/// The task that collects the letters, until nobody waits. If it ends with its runtime, or never begins, nobody does any more.
struct Collector(Option<Mail>);

impl Collector {
    async fn run(mut self) {
        let Some(mail) = self.0.clone() else { return };
        let limit = mail.0.settings.letters() + mail.0.settings.reply;
        let mut pause = Pause::new();
        while let Some(command) = mail.next_call() {
            match mail.0.link.call(&command, limit).await {
                Ok(letters) => {
                    pause = Pause::new();
                    mail.deliver(letters);
                }
                Err(failed) => {
                    mail.fail(&failed.error(Error::Closed));
                    mail.0.runtime.sleep(pause.next()).await;
                }
            }
        }
        self.0 = None;
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if let Some(mail) = &self.0 {
            let mut state = lock(&mail.0.state);
            state.is_collected = false;
            state.fail_all(&Error::RuntimeGone);
        }
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
