//! A connection that many share, of the `redis` crate. It opens on first use. One that breaks, or does not answer in time, is
//! replaced: the next call opens another. What is in flight over the old one may still be answered.

use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value};

use crate::connect::Connect;
use crate::error::{Error, Failed};
use crate::open::Asking;
use crate::runtime::{Promise, Runtime, promise};
use crate::settings::Settings;
use crate::sync::lock;
use crate::time::BootInstant;

type Opening = Promise<MultiplexedConnection>;

pub(crate) struct Link {
    connect: Connect,
    pub(crate) settings: Settings,
    pub(crate) runtime: Runtime,
    /// The connection that new calls use.
    current: Mutex<Option<Opening>>,
    /// When a connection to a server that is no primary was last given up.
    demoted: Mutex<BootInstant>,
    is_silent: AtomicBool,
    asking: Asking,
}

/// A reply, and when its request was sent.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) sent: BootInstant,
}

/// How long reading what has arrived may take, and a sixteenth of the limit at most.
const READING: Duration = Duration::from_millis(100);

/// A connection to a server that is no primary is replaced once in this time.
const DEMOTED: Duration = Duration::from_millis(200);

impl Link {
    pub(crate) fn new(connect: Connect, settings: &Settings, runtime: &Runtime) -> Arc<Link> {
        Arc::new(Link {
            connect,
            settings: settings.clone(),
            runtime: runtime.clone(),
            current: Mutex::default(),
            demoted: Mutex::default(),
            is_silent: AtomicBool::default(),
            asking: Asking::default(),
        })
    }

    /// What errors call the server.
    pub(crate) fn server(&self) -> &Arc<str> {
        &self.connect.server
    }

    /// Sends a command, and awaits its reply for `limit` at most.
    pub(crate) async fn call(
        self: &Arc<Self>,
        command: &Cmd,
        limit: Duration,
    ) -> Result<Reply, Failed> {
        let (opening, _asking) = (self.opening(), self.asking.subscribe());
        let mut connection = self.opened(&opening, limit).await?;
        let sent = BootInstant::now();
        let answer = pin!(connection.send_packed_command(command));
        let value = self.answered(answer, &opening, limit).await?;
        self.reply(value, sent)
    }

    /// Sends several commands in one write, and awaits their replies for `limit` at most.
    pub(crate) async fn call_all(
        self: &Arc<Self>,
        commands: &Pipeline,
        limit: Duration,
    ) -> Result<Vec<Result<Reply, Failed>>, Failed> {
        let (opening, _asking) = (self.opening(), self.asking.subscribe());
        let mut connection = self.opened(&opening, limit).await?;
        let sent = BootInstant::now();
        let answer = pin!(connection.send_packed_commands(commands, 0, commands.len()));
        let values = self.answered(answer, &opening, limit).await?.into_iter();
        let replies = values.map(|value| self.reply(value, sent));
        Ok(replies.collect())
    }

    /// Whether the server did not answer in time when it was last asked, or could not be reached.
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// The error of a request that has no reply yet.
    pub(crate) fn no_reply(&self, limit: Duration) -> Error {
        self.error(late("reply", limit))
    }

    /// Waits for the answer to what was sent. If there is none in time, the next call opens another connection.
    async fn answered<T>(
        &self,
        mut answer: Pin<&mut impl Future<Output = RedisResult<T>>>,
        opening: &Opening,
        limit: Duration,
    ) -> Result<T, Failed> {
        let mut answered = self.runtime.limited(limit, answer.as_mut()).await;
        if answered.is_none() {
            // What has arrived by now, and was not read because this process had other work, is not late.
            let limit = READING.min(limit / 16);
            answered = self.runtime.limited(limit, answer).await;
        }
        let answered = answered.unwrap_or_else(|| Err(late("reply", limit)));
        if answered.is_err() != self.is_silent() {
            self.is_silent.store(answered.is_err(), Ordering::Relaxed);
        }
        answered.map_err(|error| {
            self.close(opening);
            Failed::Unknown(self.error(error))
        })
    }

    /// What the server has replied. One that is no primary is left for another connection, which may lead elsewhere.
    fn reply(&self, value: Value, sent: BootInstant) -> Result<Reply, Failed> {
        let Value::ServerError(error) = value else {
            return Ok(Reply { value, sent });
        };
        if error.code() == "READONLY" {
            self.doubt();
        }
        let (server, message) = (self.server(), error.details().unwrap_or_default());
        let error = Error::of_line(server, error.code(), message);
        Err(Failed::Refused(error))
    }

    /// The server may be the primary no more: another connection may lead elsewhere.
    pub(crate) fn doubt(&self) {
        let mut demoted = lock(&self.demoted);
        if demoted.elapsed() > DEMOTED {
            *demoted = BootInstant::now();
            *lock(&self.current) = None;
        }
    }

    /// The connection, once it is open.
    async fn opened(
        &self,
        opening: &Opening,
        limit: Duration,
    ) -> Result<MultiplexedConnection, Failed> {
        if let Some(Ok(connection)) = opening.peek() {
            return Ok(connection.clone());
        }
        let opened = self.runtime.limited(limit, opening.clone()).await;
        let opened = opened.unwrap_or_else(|| Err(self.unopened(late("connection", limit))));
        if opened.is_err() {
            self.is_silent.store(true, Ordering::Relaxed);
        }
        opened.map_err(Failed::Refused)
    }

    /// The connection for a new call. It opens in the background, so that it is there for the next call if this one gives up.
    fn opening(self: &Arc<Self>) -> Opening {
        let mut current = lock(&self.current);
        if let Some(opening) = &*current {
            return opening.clone();
        }
        let (keep, opening) = promise();
        *current = Some(opening.clone());
        let (link, this) = (self.clone(), opening.clone());
        self.runtime.spawn(async move {
            let limit = link.settings.connect;
            let open = async { (link.connect.open)(link.asking.clone()).await };
            // It may be the application's code.
            let open = AssertUnwindSafe(open).catch_unwind();
            let opened = match link.runtime.limited(limit, open).await {
                Some(Ok(opened)) => opened,
                Some(Err(_)) => Err(io::Error::other("what opens connections has panicked").into()),
                None => Err(late("connection", limit)),
            };
            if opened.is_err() {
                link.close(&this);
            }
            let _ = keep.send(opened.map_err(|error| link.unopened(error)));
        });
        opening
    }

    /// Has the next call open another connection.
    fn close(&self, opening: &Opening) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|it| it.ptr_eq(opening)) {
            *current = None;
        }
    }

    /// The error of a connection that could not be opened, with what may be wrong if there is no answer at all.
    fn unopened(&self, error: RedisError) -> Error {
        let is_answer = error.is_connection_refusal()
            || !error.is_io_error() && error.kind() != ErrorKind::Parse;
        let advice = self.connect.advice;
        if is_answer || advice.is_empty() {
            return self.error(error);
        }
        let kind = match error.is_timeout() {
            true => io::ErrorKind::TimedOut,
            false => io::ErrorKind::ConnectionReset,
        };
        self.error(io::Error::new(kind, format!("{error}{advice}")).into())
    }

    fn error(&self, error: RedisError) -> Error {
        match self.runtime.is_gone() {
            true => Error::RuntimeGone,
            false => Error::Connection {
                server: self.server().to_string(),
                error,
            },
        }
    }
}

fn late(what: &str, limit: Duration) -> RedisError {
    let text = format!("no {what} within {limit:?}");
    io::Error::new(io::ErrorKind::TimedOut, text).into()
}
