//! A connection that many share, of the `redis` crate. It opens when it is first used. One that breaks, or does not answer in time, is
//! replaced; what is in flight over the old one may still be answered.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value};

use crate::error::{Error, Failed};
use crate::runtime::{Interrupted, Runtime};
use crate::sync::lock;
use crate::time::BootInstant;

/// Opens connections to a server. Clones are the same.
#[derive(Clone)]
pub(crate) struct Connect {
    pub(crate) open: Open,
    /// What may be wrong if that fails, for the text of the error.
    pub(crate) advice: &'static str,
}

pub(crate) type Open =
    Arc<dyn Fn() -> BoxFuture<'static, RedisResult<MultiplexedConnection>> + Send + Sync>;

type Opening = Shared<BoxFuture<'static, Result<MultiplexedConnection, Error>>>;

/// Clones share the connection.
#[derive(Clone)]
pub(crate) struct Link(Arc<Shares>);

struct Shares {
    server: Arc<str>,
    connect: Connect,
    opening: Opens,
    runtime: Runtime,
    current: Mutex<Current>,
    is_silent: AtomicBool,
}

/// How connections are opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opens {
    /// How long that may take.
    pub(crate) limit: Duration,
    /// Whether a call waits for it, however short its own limit is.
    pub(crate) is_awaited: bool,
}

/// The connection that new calls use, and how many came before it.
struct Current {
    generation: u64,
    state: State,
    /// When a connection to a server that is no primary was last given up.
    demoted: BootInstant,
}

enum State {
    Closed,
    Opening(Opening),
    Open(MultiplexedConnection),
}

/// A reply, and when its request was sent.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) sent: BootInstant,
}

/// The replies to several commands, errors included, and when they were sent.
pub(crate) struct Replies {
    pub(crate) values: Vec<Result<Value, Error>>,
    pub(crate) sent: BootInstant,
}

/// How long reading what has arrived may take.
const LONGEST_READING: Duration = Duration::from_millis(100);

/// A connection to a server that is no primary is replaced once in this time.
const DEMOTED: Duration = Duration::from_millis(200);

impl Current {
    fn close(&mut self) {
        self.generation += 1;
        self.state = State::Closed;
    }
}

impl Link {
    pub(crate) fn new(
        server: Arc<str>,
        connect: Connect,
        opening: Opens,
        runtime: Runtime,
    ) -> Link {
        let current = Mutex::new(Current {
            generation: 0,
            state: State::Closed,
            demoted: BootInstant::default(),
        });
        let is_silent = AtomicBool::new(false);
        Link(Arc::new(Shares {
            server,
            connect,
            opening,
            runtime,
            current,
            is_silent,
        }))
    }

    /// Sends a command, and awaits its reply for `limit` at most.
    pub(crate) async fn call(&self, command: &Cmd, limit: Duration) -> Result<Reply, Failed> {
        let (generation, mut connection) = self.connection(limit).await?;
        let sent = BootInstant::now();
        let answer = connection.send_packed_command(command);
        match self.answered(answer, generation, limit).await? {
            Value::ServerError(error) => Err(Failed::Refused(self.refused(&error, generation))),
            value => Ok(Reply { value, sent }),
        }
    }

    /// Sends several commands in one write, and awaits their replies for `limit` at most.
    pub(crate) async fn call_all(
        &self,
        commands: &Pipeline,
        limit: Duration,
    ) -> Result<Replies, Failed> {
        let (generation, mut connection) = self.connection(limit).await?;
        let sent = BootInstant::now();
        let answer = connection.send_packed_commands(commands, 0, commands.len());
        let values = self.answered(answer, generation, limit).await?;
        let checked = |value| match value {
            Value::ServerError(error) => Err(self.refused(&error, generation)),
            value => Ok(value),
        };
        Ok(Replies {
            values: values.into_iter().map(checked).collect(),
            sent,
        })
    }

    /// Whether the server did not answer in time when it was last asked, or could not be reached.
    pub(crate) fn is_silent(&self) -> bool {
        self.0.is_silent.load(Ordering::Relaxed)
    }

    /// The error of a request that was not answered yet when its answer was not needed any more.
    pub(crate) fn silence(&self) -> Error {
        self.connection_error(io::Error::new(io::ErrorKind::TimedOut, "no reply in time").into())
    }

    /// Waits for an answer. If there is none in time, the next call opens another connection.
    async fn answered<T>(
        &self,
        answer: impl Future<Output = RedisResult<T>>,
        generation: u64,
        limit: Duration,
    ) -> Result<T, Failed> {
        let (mut answer, runtime) = (pin!(answer), &self.0.runtime);
        let mut answered = runtime.limited(limit, answer.as_mut()).await;
        if matches!(answered, Err(Interrupted::Late)) {
            // What has arrived by now, and was not read because this process had other work, is not late.
            let reading = (limit / 16).min(LONGEST_READING);
            answered = runtime.limited(reading, answer).await;
        }
        let error = match answered {
            Ok(Ok(answer)) => {
                self.0.is_silent.store(false, Ordering::Relaxed);
                return Ok(answer);
            }
            Ok(Err(error)) => self.connection_error(error),
            Err(interrupted) => self.interrupted(interrupted, limit),
        };
        self.0.is_silent.store(true, Ordering::Relaxed);
        self.give_up(generation);
        Err(Failed::Unknown(error))
    }

    /// An error that the server has replied. One that is no primary is left for another connection, which may lead elsewhere.
    fn refused(&self, error: &redis::ServerError, generation: u64) -> Error {
        let mut current = lock(&self.0.current);
        let is_current = current.generation == generation;
        if error.code() == "READONLY" && is_current && current.demoted.elapsed() > DEMOTED {
            current.demoted = BootInstant::now();
            current.close();
        }
        drop(current);
        Error::replied(&self.0.server, error)
    }

    async fn connection(&self, limit: Duration) -> Result<(u64, MultiplexedConnection), Failed> {
        let (generation, opening) = {
            let mut current = lock(&self.0.current);
            match &current.state {
                State::Open(connection) => return Ok((current.generation, connection.clone())),
                State::Opening(opening) => (current.generation, opening.clone()),
                State::Closed => {
                    let opening = self.open(current.generation);
                    current.state = State::Opening(opening.clone());
                    (current.generation, opening)
                }
            }
        };
        let Opens {
            limit: longest,
            is_awaited,
        } = self.0.opening;
        let limit = if is_awaited {
            limit.max(longest)
        } else {
            limit
        };
        let opened = match self.0.runtime.limited(limit, opening).await {
            Ok(opened) => opened,
            Err(interrupted) => Err(self.not_opened(interrupted, limit)),
        };
        if opened.is_err() {
            self.0.is_silent.store(true, Ordering::Relaxed);
        }
        Ok((generation, opened.map_err(Failed::Refused)?))
    }

    /// Opens a connection in the background, so that it is there for the next caller if this one gives up.
    fn open(&self, generation: u64) -> Opening {
        let (sender, opened) = tokio::sync::oneshot::channel();
        let link = self.clone();
        self.0.runtime.spawn(async move {
            let shares = &link.0;
            let opening = (shares.connect.open)();
            let opened = shares.runtime.limited(shares.opening.limit, opening).await;
            let opened = match opened {
                Ok(opened) => opened.map_err(|error| link.unopened(error)),
                Err(interrupted) => Err(link.not_opened(interrupted, shares.opening.limit)),
            };
            let mut current = lock(&shares.current);
            if current.generation == generation {
                match &opened {
                    Ok(connection) => current.state = State::Open(connection.clone()),
                    Err(_) => current.close(),
                }
            }
            drop(current);
            let _ = sender.send(opened);
        });
        let opened = opened.map(|opened| opened.unwrap_or(Err(Error::RuntimeGone)));
        opened.boxed().shared()
    }

    /// The error of a connection that could not be opened, with what may be wrong if there is no answer at all.
    fn unopened(&self, error: RedisError) -> Error {
        let is_answer = error.is_connection_refusal()
            || !error.is_io_error() && error.kind() != ErrorKind::Parse;
        let (advice, kind) = match is_answer {
            true => return self.connection_error(error),
            false if error.is_timeout() => (self.0.connect.advice, io::ErrorKind::TimedOut),
            false => (self.0.connect.advice, io::ErrorKind::ConnectionReset),
        };
        if advice.is_empty() {
            return self.connection_error(error);
        }
        self.connection_error(io::Error::new(kind, format!("{error}{advice}")).into())
    }

    /// Has the next call open another connection.
    fn give_up(&self, generation: u64) {
        let mut current = lock(&self.0.current);
        if current.generation == generation {
            current.close();
        }
    }

    /// The error of a connection that was not opened in time.
    fn not_opened(&self, interrupted: Interrupted, limit: Duration) -> Error {
        match interrupted {
            Interrupted::RuntimeGone => Error::RuntimeGone,
            Interrupted::Late => {
                let text = format!("no connection within {limit:?}");
                self.unopened(io::Error::new(io::ErrorKind::TimedOut, text).into())
            }
        }
    }

    fn interrupted(&self, interrupted: Interrupted, limit: Duration) -> Error {
        match interrupted {
            Interrupted::RuntimeGone => Error::RuntimeGone,
            Interrupted::Late => {
                let text = format!("no reply within {limit:?}");
                self.connection_error(io::Error::new(io::ErrorKind::TimedOut, text).into())
            }
        }
    }

    fn connection_error(&self, error: RedisError) -> Error {
        match self.0.runtime.is_gone() {
            true => Error::RuntimeGone,
            false => Error::Connection {
                server: self.0.server.to_string(),
                error,
            },
        }
    }
}
