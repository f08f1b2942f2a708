//! What moves a connection's bytes: opens it, writes what was sent, delivers what is answered, and gives it up where an
//! answer is overdue. One task for each connection, on the client's runtime.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select, try_join, try_join3};
use futures_util::{StreamExt, stream};
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::connection::{Connection, Limits};
use super::dial::{Dial, Link, ask, receive};
use super::task;
use crate::proto::Failure;
use crate::value::{BootInstant, ConnectionError, LOOK};

/// What one look at the socket takes in.
const CHUNK: usize = 16 * 1024;
/// Between attempts to open a connection again.
const PAUSE: Duration = Duration::from_millis(50);
/// So many batches are on their way at once over a connection of the `redis` crate.
const BATCHES: usize = 1024;

/// A connection and the task that drives it, which ends after this is dropped and what was sent is answered.
#[derive(Debug)]
pub(super) struct Driven(pub(super) Arc<Connection>, AbortHandle);

impl Driven {
    /// Begins to open a connection.
    pub(super) fn open(dial: Arc<Dial>, limits: Limits, on: &Handle) -> Driven {
        let connection = Arc::<Connection>::default();
        let end = End(connection.clone(), Failure::Gone);
        let driving = drive(end, dial, limits);
        Driven(connection, task::spawn(on, driving).abort_handle())
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        if self.0.oldest().is_none() {
            self.1.abort();
        }
    }
}

/// However the driving ends, with its runtime too, nobody waits on for an answer, but is told this.
struct End(Arc<Connection>, Failure);

impl Drop for End {
    fn drop(&mut self) {
        self.0.close(&self.1);
    }
}

/// Opens a connection and drives it to its end.
async fn drive(mut end: End, dial: Arc<Dial>, limits: Limits) {
    let End(connection, told) = &mut end;
    while !is_unused(connection) {
        let began = BootInstant::now();
        match open(connection, &dial, limits).await {
            Ok(link) => {
                connection.opened();
                let error = pass(connection, link).await;
                let is_silent = error.is_timeout();
                *told = Failure::Unknown(error);
                if !limits.impatient {
                    return;
                }
                // One that is silent is not waited for until it is open again.
                connection.fail(told, is_silent, None);
            }
            Err(error) => {
                *told = Failure::NotSent(error);
                // Whoever has asked meanwhile has the next attempt.
                connection.fail(told, limits.impatient, Some(began));
                match limits.impatient {
                    true => sleep(PAUSE).await,
                    false if connection.oldest().is_none() => return,
                    false => {}
                }
            }
        }
    }
}

fn is_unused(connection: &Arc<Connection>) -> bool {
    Arc::strong_count(connection) == 1
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
async fn pass(connection: &Arc<Connection>, link: Link) -> ConnectionError {
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

/// Ends with the oldest request that is overdue, or when nobody has to do with the connection any more.
async fn watch(connection: &Arc<Connection>) -> Result<Infallible, ConnectionError> {
    loop {
        let oldest = poll_fn(|_| match connection.oldest() {
            None if !is_unused(connection) => Poll::Pending,
            oldest => Poll::Ready(oldest),
        });
        let Some((due, limit)) = oldest.await else {
            return Err(ConnectionError::new("nobody uses it"));
        };
        let left = due.remaining();
        if left.is_zero() {
            return Err(ConnectionError::silence("no reply", limit));
        }
        // Timers stand still in suspend, where the boot-time clock goes on.
        sleep(left.min(LOOK)).await;
    }
}
