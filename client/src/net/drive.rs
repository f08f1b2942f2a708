//! Moves a connection's bytes: opens it, writes what was sent, and delivers what is answered. Where an answer is late it opens
//! another connection beside this one, and goes on with the one that is faster. One task for each connection, on the client's
//! runtime.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, select, try_join};
use futures_util::{FutureExt, StreamExt, TryFutureExt, stream};
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::connect::Connector;
use super::connection::{Connection, Pending, Timeouts, WhileClosed};
use super::in_flight::Patience;
use super::link::{Link, ask, receive};
use super::task;
use crate::value::{BootInstant, ConnectionError, lock, random};
use crate::wire::{Command, NoReply};

/// How many bytes one read takes in.
const CHUNK: usize = 16 * 1024;
/// Between attempts to open a connection again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The shortest sleep of the runtime.
const TURN: Duration = Duration::from_millis(1);
/// The room in a batch that need not grow for some requests.
const BATCH: usize = 512;
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

    pub(super) async fn settled(&self) {
        self.connection.settled().await;
    }

    /// As [`Connection::send`].
    pub(super) fn send(
        &self,
        commands: &[&Command<'_>],
        patience: Patience,
        now: BootInstant,
    ) -> Pending {
        if self.process != std::process::id() {
            return Pending::refused(NoReply::Forked);
        }
        let pending = self.connection.send(commands, patience, now);
        if self.connection.needs_driver() {
            let driving = Driving(self.connection.clone());
            let driving = drive(driving, self.connector.clone(), self.timeouts);
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

/// A connection while a task drives it. However the task ends, what is in flight fails then, and the next request starts another
/// task.
struct Driving(Arc<Connection>);

impl Drop for Driving {
    fn drop(&mut self) {
        let panic = || ConnectionError::new("the task that moves its bytes has panicked");
        self.0.undriven(&match std::thread::panicking() {
            true => NoReply::Unknown(panic()),
            false => NoReply::RuntimeGone,
        });
    }
}

/// Why a connection has ended.
struct Ended {
    error: ConnectionError,
    /// If the error is a time-out, it is that of the requests that were sent by then.
    sent_by: Option<BootInstant>,
}

impl From<ConnectionError> for Ended {
    fn from(error: ConnectionError) -> Ended {
        let sent_by = None;
        Ended { error, sent_by }
    }
}

/// Opens a connection again and again, as long as there are requests for it, and moves its bytes.
async fn drive(driving: Driving, connector: Arc<Connector>, timeouts: Timeouts) {
    let connection = &driving.0;
    let fails_fast = timeouts.while_closed == WhileClosed::FailFast;
    let mut pause = FIRST_PAUSE;
    loop {
        connection.wanted().await;
        let began = BootInstant::now();
        match open(connection, &connector, timeouts).await {
            Ok(link) => {
                pause = FIRST_PAUSE;
                connection.opened();
                let Ended { error, sent_by } = serve(connection, &connector, timeouts, link).await;
                if fails_fast && error.is_timeout() {
                    // A silent server is not waited for until it is open again.
                    connection.refuse(NoReply::NotSent(error.clone()));
                }
                match sent_by.filter(|_| error.is_timeout()) {
                    Some(moment) => connection.time_out(moment, &NoReply::Unknown(error)),
                    None => connection.fail(&NoReply::Unknown(error)),
                }
            }
            Err(error) => {
                let reason = NoReply::NotSent(error);
                if fails_fast {
                    connection.refuse(reason.clone());
                }
                // What was sent meanwhile has the next attempt.
                connection.fail_sent_by(began, &reason);
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
            let reason = NoReply::NotSent(silence);
            connection.refuse(reason.clone());
            connection.fail_sent_by(BootInstant::now(), &reason);
        }
        pending::<Infallible>().await
    });
    let opening = pin!(connector.open(timeouts.connect));
    match select(opening, failing).await {
        Either::Left((opened, _)) => opened,
        Either::Right((never, _)) => match never {},
    }
}

/// Moves requests and replies over this link, or a faster one that has taken its place, until that is broken or given up.
async fn serve(
    connection: &Connection,
    connector: &Connector,
    timeouts: Timeouts,
    mut link: Link,
) -> Ended {
    loop {
        let moving = pin!(transfer(connection, link));
        let watching = pin!(watch(connection, connector, timeouts));
        link = match select(moving, watching).await {
            Either::Left((ended, _)) => return ended,
            Either::Right((Err(error), _)) => return error.into(),
            Either::Right((Ok(faster), _)) => faster,
        };
        let error =
            ConnectionError::overtaken("another connection was open before this one answered");
        connection.fail(&NoReply::Unknown(error));
        connection.opened();
    }
}

async fn transfer(connection: &Connection, link: Link) -> Ended {
    let ended = match link {
        Link::Stream(stream) => {
            let (reader, writer) = tokio::io::split(stream);
            try_join(write(connection, writer), read(connection, reader))
                .await
                .map(|(never, _)| never)
                .map_err(Ended::from)
        }
        Link::Crate(other) => relay(connection, other).await,
    };
    match ended {
        Ok(never) => match never {},
        Err(ended) => ended,
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
        let receiving = receive(&mut stream, &mut input, &mut replies);
        connection.listen(receiving).await?;
        connection.deliver(&mut replies)?.wake().await;
    }
}

/// Over a connection of the `redis` crate: one that the application supplied, or one with TLS. It has a time limit of its own.
async fn relay(connection: &Connection, other: MultiplexedConnection) -> Result<Infallible, Ended> {
    let batches = stream::unfold(connection, |connection| async move {
        // What comes next is written into it, and passed on with it.
        let spare = Vec::with_capacity(BATCH);
        Some((connection.next_batch(spare).await, connection))
    });
    let answers = batches.boxed().map(|batch| {
        let sent_by = Some(BootInstant::now());
        ask(other.clone(), batch).map_err(move |error| Ended { error, sent_by })
    });
    let mut answers = pin!(answers.buffered(BATCHES));
    loop {
        let mut replies = connection.listen(answers.select_next_some()).await?;
        connection.deliver(&mut replies)?.wake().await;
    }
}

/// Fails the requests whose time is over. Where an answer is late it opens another connection, and ends with that if it is
/// open first; or with an error, if there can be none while this one is silent.
async fn watch(
    connection: &Connection,
    connector: &Connector,
    timeouts: Timeouts,
) -> Result<Link, ConnectionError> {
    let mut beside: Option<BoxFuture<'_, Result<Link, ConnectionError>>> = None;
    loop {
        let now = heard_by(connection).await;
        if connection.expire(now) && timeouts.while_closed == WhileClosed::FailFast {
            // A silent server is not waited for until it answers.
            let silence = ConnectionError::silence("no reply", timeouts.answer);
            connection.refuse(NoReply::NotSent(silence));
        }
        let due = connection.due(now);
        if due.is_late && beside.is_none() {
            beside = Some(open_beside(connector, timeouts).boxed());
        }
        let opened = {
            let opening = pin!(or_never(beside.as_mut()));
            let sleeping = pin!(or_never(due.next.map(|next| sleep(next.next_sleep()))));
            let earlier = pin!(connection.is_due_earlier());
            match select(opening, select(sleeping, earlier)).await {
                Either::Left((opened, _)) => opened,
                Either::Right(_) => continue,
            }
        };
        let now = heard_by(connection).await;
        match opened {
            Ok(link) if connection.due(now).is_late => return Ok(link),
            Err(error) if connection.is_silent() => return Err(error),
            // It has answered meanwhile, or may still do so in time.
            _ => beside = None,
        }
    }
}

/// Now. If something is due, what has arrived by now is delivered first: a client that was kept from its work must not take its own
/// delay for the server's.
async fn heard_by(connection: &Connection) -> BootInstant {
    let now = BootInstant::now();
    if connection.due(now).is_by(now) {
        // The runtime asks the system what has arrived before it ends a sleep.
        sleep(TURN).await;
        connection.delivered().await;
    }
    now
}

/// Resolves as the future does, if there is one.
async fn or_never<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn open_beside(connector: &Connector, timeouts: Timeouts) -> Result<Link, ConnectionError> {
    let opened = connector.open(timeouts.connect).await;
    if opened.is_err() {
        sleep(FIRST_PAUSE).await;
    }
    opened
}
