//! What moves a connection's bytes: opens it, writes what was sent, delivers what is answered, and gives it up where an
//! answer is overdue. One task for each connection, on the client's runtime.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select, try_join, try_join3};
use futures_util::{StreamExt, stream};
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::connection::{Connection, Limits, Pending};
use super::dial::{Dial, Link, ask, receive};
use super::task;
use crate::proto::{Command, Failure};
use crate::value::{BootInstant, ConnectionError, LOOK};

/// What one look at the socket takes in.
const CHUNK: usize = 16 * 1024;
/// Between attempts to open a connection again.
const PAUSE: Duration = Duration::from_millis(50);
/// So many batches are on their way at once over a connection of the `redis` crate.
const BATCHES: usize = 1024;

/// A connection, which a task opens when it is first used, and again after it was lost.
#[derive(Debug)]
pub(super) struct Driven {
    pub(super) dial: Arc<Dial>,
    pub(super) limits: Limits,
    pub(super) runtime: Handle,
    connection: Arc<Connection>,
    driver: OnceLock<AbortHandle>,
    /// Its socket is this process's alone. A child that was forked has the same one, and must not write to it.
    process: u32,
}

impl Driven {
    pub(super) fn new(dial: Arc<Dial>, limits: Limits, runtime: Handle) -> Driven {
        Driven {
            connection: Connection::new(),
            driver: OnceLock::new(),
            dial,
            limits,
            runtime,
            process: std::process::id(),
        }
    }

    /// As [`Connection::send`].
    pub(super) fn send(
        &self,
        commands: &[&Command<'_>],
        limit: Duration,
        now: BootInstant,
    ) -> Pending {
        if self.process != std::process::id() {
            return Pending::refused(Failure::Gone);
        }
        let pending = self.connection.send(commands, limit, now);
        self.driver.get_or_init(|| {
            let end = End(self.connection.clone());
            let driving = drive(end, self.dial.clone(), self.limits);
            task::spawn(&self.runtime, driving).abort_handle()
        });
        pending
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.get() {
            driver.abort();
        }
    }
}

/// However the driving ends, with its runtime too, nobody waits on for an answer.
struct End(Arc<Connection>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.fail(&Failure::Gone, true, None);
    }
}

/// Opens a connection again and again, and passes on what there is.
async fn drive(end: End, dial: Arc<Dial>, limits: Limits) {
    let connection = &end.0;
    loop {
        if !limits.impatient {
            connection.wanted().await;
        }
        let began = BootInstant::now();
        match open(connection, &dial, limits).await {
            Ok(link) => {
                connection.opened();
                let error = pass(connection, link).await;
                // One that is silent is not waited for until it is open again, where others are there to answer.
                let refuses = limits.impatient && error.is_timeout();
                connection.fail(&Failure::Unknown(error), refuses, None);
            }
            Err(error) => {
                // Whoever has asked meanwhile has the next attempt.
                connection.fail(&Failure::NotSent(error), limits.impatient, Some(began));
                if limits.impatient {
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

async fn open(
    connection: &Connection,
    dial: &Dial,
    limits: Limits,
) -> Result<Link, ConnectionError> {
    let refusing = pin!(async {
        if limits.impatient {
            sleep(limits.answer).await;
            let silence = ConnectionError::silence("not connected", limits.answer);
            connection.fail(&Failure::NotSent(silence), true, None);
        }
        pending::<Infallible>().await
    });
    let opening = pin!(timeout(limits.connect, dial.open()));
    match select(opening, refusing).await {
        Either::Left((Ok(opened), _)) => opened,
        _ => Err(ConnectionError::silence("no connection", limits.connect)),
    }
}

/// Passes requests and replies on, until that is over.
async fn pass(connection: &Connection, link: Link) -> ConnectionError {
    match link {
        Link::Stream(stream) => {
            let (reader, writer) = tokio::io::split(stream);
            let (reading, writing) = (read(connection, reader), write(connection, writer));
            let Err(error) = try_join3(writing, reading, watch(connection)).await;
            error
        }
        Link::Crate(other) => {
            let Err(error) = try_join(relay(connection, other), watch(connection)).await;
            error
        }
    }
}

async fn write(
    connection: &Connection,
    mut stream: impl AsyncWrite + Unpin,
) -> Result<Infallible, ConnectionError> {
    let mut out = Vec::new();
    loop {
        out = connection.next_batch(out).await;
        stream.write_all(&out).await?;
    }
}

async fn read(
    connection: &Connection,
    mut stream: impl AsyncRead + Unpin,
) -> Result<Infallible, ConnectionError> {
    let (mut input, mut replies) = (Vec::with_capacity(CHUNK), Vec::new());
    loop {
        receive(&mut stream, &mut input, &mut replies).await?;
        connection.deliver(&mut replies)?;
    }
}

/// Over a connection of the `redis` crate: one that the application gave, or one with TLS.
async fn relay(
    connection: &Connection,
    other: MultiplexedConnection,
) -> Result<Infallible, ConnectionError> {
    let batches = stream::unfold(connection, |connection| async move {
        Some((connection.next_batch(Vec::new()).await, connection))
    });
    let answers = batches.boxed().map(|batch| ask(other.clone(), batch));
    let mut answers = pin!(answers.buffered(BATCHES));
    loop {
        let mut replies = answers.select_next_some().await?;
        connection.deliver(&mut replies)?;
    }
}

/// Ends with the oldest request that is overdue.
async fn watch(connection: &Connection) -> Result<Infallible, ConnectionError> {
    loop {
        // Whatever is sent wakes this task.
        let oldest = poll_fn(|_| connection.oldest().map_or(Poll::Pending, Poll::Ready));
        let (due, limit) = oldest.await;
        let left = due.remaining();
        if left.is_zero() {
            return Err(ConnectionError::silence("no reply", limit));
        }
        // Timers stand still in suspend, where the boot-time clock goes on.
        sleep(left.min(LOOK)).await;
    }
}
