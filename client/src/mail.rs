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
use crate::sync::lock;
use crate::time::{BootInstant, Lease};
use crate::token::Token;

/// What was decided of a request that waited.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It was granted by this token, not before this moment.
    Granted {
        token: Token,
        since: BootInstant,
    },
    Denied,
    /// It may have been granted, if it was ever queued.
    Failed(Error),
}

/// How letters are collected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collecting {
    /// How long one call waits for letters.
    pub(crate) wait: Duration,
    /// How long its reply may take beyond that.
    pub(crate) reply: Duration,
    /// Whether requests keep waiting while the server is away, because no other one may take its place.
    pub(crate) is_patient: bool,
}

/// The box of one client at one server. Clones share it.
#[derive(Clone)]
pub(crate) struct Mail(Arc<Shares>);

struct Shares {
    link: Link,
    server: Arc<str>,
    runtime: Runtime,
    collecting: Collecting,
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

impl State {
    fn fail_all(&mut self, error: &Error) {
        for request in std::mem::take(&mut self.requests).into_values() {
            let _ = request.decided.send(Decision::Failed(error.clone()));
        }
    }
}

/// The task that collects the letters. If it ends with its runtime, or never begins, nobody collects them any more.
struct Collector {
    mail: Mail,
    /// Nobody waits any more, so another task collects what comes later.
    is_done: bool,
}

impl Collector {
    async fn run(mut self) {
        self.mail.collect().await;
        self.is_done = !self.mail.0.runtime.is_gone();
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut state = lock(&self.mail.0.state);
        state.is_collected = false;
        state.fail_all(&Error::RuntimeGone);
    }
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
    pub(crate) fn new(
        link: Link,
        server: Arc<str>,
        runtime: Runtime,
        collecting: Collecting,
    ) -> Mail {
        Mail(Arc::new(Shares {
            link,
            server,
            runtime,
            collecting,
            state: Mutex::default(),
        }))
    }

    /// The name of the box. In a cluster it has `tag`, so that its slot is one of this server's.
    pub(crate) fn mailbox(&self, tag: impl FnOnce() -> Option<String>) -> Bytes {
        let name = || match tag() {
            Some(tag) => format!("{{{tag}}}{}", random_uuid()).into_bytes().into(),
            None => random_uuid().to_string().into_bytes().into(),
        };
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
        let requests = std::mem::take(&mut state.requests).into_values();
        let ended = requests.map(|request| {
            let _ = request.decided.send(Decision::Failed(Error::Closed));
            (request.name, request.lease)
        });
        ended.collect()
    }

    /// Collects letters until nobody waits.
    async fn collect(&self) {
        let Collecting { wait, reply, .. } = self.0.collecting;
        let mut pause = Pause::new();
        while let Some(command) = self.next_call() {
            match self.0.link.call(&command, wait + reply).await {
                Ok(letters) => {
                    pause = Pause::new();
                    self.deliver(letters);
                }
                Err(failed) => {
                    self.fail(failed.error(Error::Closed));
                    self.0.runtime.sleep(pause.next()).await;
                }
            }
        }
    }

    /// What collects the next letters; `None` once nobody waits.
    fn next_call(&self) -> Option<Cmd> {
        let mut state = lock(&self.0.state);
        let is_awaited = state
            .requests
            .values()
            .any(|request| request.queued.is_some());
        state.is_collected = is_awaited && !self.0.runtime.is_gone();
        let mut command = redis::cmd("LOCK.MAIL");
        command.arg(state.mailbox.as_deref()?);
        if let Some(since) = state.since {
            command.arg("AFTER").arg(since).arg(state.read);
        }
        command
            .arg("WAIT")
            .arg(self.0.collecting.wait.as_millis() as u64);
        state.is_collected.then_some(command)
    }

    /// The letters could not be collected.
    fn fail(&self, error: Error) {
        let mut state = lock(&self.0.state);
        match &error {
            // The box is not this server's any more.
            Error::Refused { code, .. } if code == "MOVED" => state.mailbox = None,
            Error::Refused { code, .. } if code == "UNBLOCKED" => return,
            error if error.passes() && self.0.collecting.is_patient => return,
            _ => {}
        }
        state.since = None;
        state.fail_all(&error);
    }

    fn deliver(&self, Reply { value, sent }: Reply) {
        let Ok((since, waited, letters)) = <(i64, u64, Vec<Letter>)>::from_redis_value(value)
        else {
            return self.fail(Error::unexpected(&"letters that are none"));
        };
        // The server's clock may have run faster than this one.
        let written = sent + Duration::from_millis(waited - waited / 100);
        let mut state = lock(&self.0.state);
        if state.since.replace(since) != Some(since) {
            state.read = 0;
        }
        for letter in letters
            .into_iter()
            .filter_map(|letter| letter.read(&self.0.server, written))
        {
            if letter.number > state.read {
                state.read = letter.number;
                // If nobody asks for it any more, whoever gave it up has left the name.
                if let Some(request) = state.requests.remove(&letter.owner) {
                    let _ = request.decided.send(letter.decision);
                }
            }
        }
        // What was queued in an earlier box waits no more, or was granted and given back.
        let is_there = |request: &Pending| {
            request
                .queued
                .is_none_or(|(queued, learned)| queued == since || learned > sent)
        };
        state.requests.retain(|_, request| is_there(request));
    }
}

impl Entry {
    /// Notes the box that it waits in. Returns whether a task has to be started that collects its letters.
    fn set_queued(&self, since: i64) -> bool {
        let mut state = lock(&self.mail.0.state);
        let Some(request) = state.requests.get_mut(&self.owner) else {
            return false;
        };
        request.queued = Some((since, BootInstant::now()));
        !std::mem::replace(&mut state.is_collected, true)
    }

    /// Waits for what is decided of the request, which is queued in the box with this number.
    pub(crate) async fn decision(&mut self, since: i64) -> Decision {
        if self.set_queued(since) {
            let collector = Collector {
                mail: self.mail.clone(),
                is_done: false,
            };
            self.mail.0.runtime.spawn(collector.run());
        }
        let gone = || {
            Decision::Failed(Error::of_line(
                "",
                "UNBLOCKED",
                "the server has closed the box",
            ))
        };
        (&mut self.decided).await.unwrap_or_else(|_| gone())
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&self.mail.0.state).requests.remove(&self.owner);
    }
}

/// A letter as it arrives.
struct Letter(HashMap<String, Value>);

/// A letter that was read.
struct Read {
    number: i64,
    owner: Bytes,
    decision: Decision,
}

impl FromRedisValue for Letter {
    fn from_redis_value(value: Value) -> Result<Letter, redis::ParsingError> {
        HashMap::from_redis_value(value).map(Letter)
    }
}

impl Letter {
    /// Reads a letter that was written by `written` at the latest; `None` if it lacks what every letter has.
    fn read(mut self, server: &str, written: BootInstant) -> Option<Read> {
        let number = self.take("number")?;
        let owner: Vec<u8> = self.take("owner")?;
        let decision = match self.take::<String>("result")?.as_str() {
            "granted" => Decision::Granted {
                token: Token::new(self.take("token")?),
                since: written.back(Duration::from_millis(self.take("age")?)),
            },
            "refused" => {
                let line: String = self.take("error")?;
                let (code, message) = line.split_once(' ').unwrap_or((&line, ""));
                Decision::Failed(Error::of_line(server, code, message))
            }
            _ => Decision::Denied,
        };
        Some(Read {
            number,
            owner: owner.into(),
            decision,
        })
    }

    fn take<T: FromRedisValue>(&mut self, field: &str) -> Option<T> {
        T::from_redis_value(self.0.remove(field)?).ok()
    }
}

impl From<Decision> for Result<(Token, BootInstant), Failed> {
    fn from(decision: Decision) -> Result<(Token, BootInstant), Failed> {
        match decision {
            Decision::Granted { token, since } => Ok((token, since)),
            Decision::Denied => Err(Failed::Denied),
            Decision::Failed(error) => Err(Failed::Unknown(error)),
        }
    }
}
