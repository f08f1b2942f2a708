//! Moves a connection's bytes: opens it, writes what was sent, delivers what is answered, and gives it up where an answer is
//! overdue. One task for each connection, on the client's runtime.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{Either, select, try_join, try_join3};
use futures_util::{StreamExt, stream};
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::connect::{Connector, Link, ask, receive};
use super::connection::{Connection, Pending, Timeouts, WhileClosed};
use super::task;
use crate::value::{BootInstant, ConnectionError, LOOK, lock, random};
use crate::wire::{Command, Failure};

/// How many bytes one read takes in.
const CHUNK: usize = 16 * 1024;
/// Between attempts to open a connection again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// So many batches are on their way at once over a connection of the `redis` crate.
const BATCHES: usize = 1024;

/// A connection, which a task opens when it is first used, and again after it was lost.
#[derive(Debug)]
pub(super) struct Driven {
    pub(super) connector: Arc<Connector>,
    pub(super) timeouts: Timeouts,
    pub(super) runtime: Handle,
    connection: Arc<Connection>,
    driver: Mutex<Option<AbortHandle>>,
    /// Its socket is this process's alone. A child that was forked has the same one, and must not write to it.
    process: u32,
}

impl Driven {
    pub(super) fn new(connector: Arc<Connector>, timeouts: Timeouts, runtime: Handle) -> Driven {
        Driven {
            connection: Connection::new(),
            driver: Mutex::new(None),
            connector,
            timeouts,
            runtime,
            process: std::process::id(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.connection.is_open()
    }

    /// As [`Connection::send`].
    pub(super) fn send(
        &self,
        commands: &[&Command<'_>],
        limit: Duration,
        now: BootInstant,
    ) -> Pending {
        if self.process != std::process::id() {
            return Pending::refused(Failure::Forked);
        }
        let pending = self.connection.send(commands, limit, now);
        if self.connection.needs_driver() {
            let end = End(self.connection.clone());
            let driving = drive(end, self.connector.clone(), self.timeouts);
            let driver = task::spawn(&self.runtime, driving).abort_handle();
            *lock(&self.driver) = Some(driver);
        }
        pending
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        if let Some(driver) = lock(&self.driver).take() {
            driver.abort();
        }
    }
}

/// However the task ends, nobody waits on for an answer, and the next request starts another task.
struct End(Arc<Connection>);

impl Drop for End {
    fn drop(&mut self) {
        let panic = || ConnectionError::new("the task that moves its bytes has panicked");
        self.0.undriven(&match std::thread::panicking() {
            true => Failure::Unknown(panic()),
            false => Failure::RuntimeGone,
        });
    }
}

/// Opens a connection again and again, as long as somebody wants something of it, and passes on what there is.
async fn drive(end: End, connector: Arc<Connector>, timeouts: Timeouts) {
    let connection = &end.0;
    let fails_fast = timeouts.while_closed == WhileClosed::FailFast;
    let mut pause = FIRST_PAUSE;
    loop {
        connection.wanted().await;
        let began = BootInstant::now();
        match open(connection, &connector, timeouts).await {
            Ok(link) => {
                pause = FIRST_PAUSE;
                connection.opened();
                let error = pass(connection, link).await;
                if fails_fast && error.is_timeout() {
                    // A silent server is not waited for until it is open again.
                    connection.refuse(Failure::NotSent(error.clone()));
                }
                connection.fail(&Failure::Unknown(error));
            }
            Err(error) => {
                let failure = Failure::NotSent(error);
                if fails_fast {
                    connection.refuse(failure.clone());
                }
                // What was sent meanwhile has the next attempt.
                connection.fail_sent_by(began, &failure);
                sleep(pause.mul_f64(0.5 + random::fraction() / 2.0)).await;
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
        }
    }
}

async fn open(
    connection: &Connection,
    connector: &Connector,
    timeouts: Timeouts,
) -> Result<Link, ConnectionError> {
    let failing = pin!(async {
        if timeouts.while_closed == WhileClosed::FailFast {
            sleep(timeouts.answer).await;
            let silence = ConnectionError::silence("not connected", timeouts.answer);
            let failure = Failure::NotSent(silence);
            connection.refuse(failure.clone());
            connection.fail_sent_by(BootInstant::now(), &failure);
        }
        pending::<Infallible>().await
    });
    let opening = pin!(connector.open(timeouts.connect));
    match select(opening, failing).await {
        Either::Left((opened, _)) => opened,
        Either::Right((never, _)) => match never {},
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

/// Over a connection of the `redis` crate: one that the application supplied, or one with TLS.
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

/// Ends with the first request that is overdue.
async fn watch(connection: &Connection) -> Result<Infallible, ConnectionError> {
    loop {
        let Some(first) = connection.first_overdue() else {
            connection.is_due_earlier().await;
            continue;
        };
        let left = first.at.remaining();
        if left.is_zero() {
            return Err(ConnectionError::silence("no reply", first.limit));
        }
        // Timers stand still in suspend, where the boot-time clock goes on.
        let pause = pin!(sleep(left.min(LOOK)));
        select(pause, pin!(connection.is_due_earlier())).await;
    }
}
