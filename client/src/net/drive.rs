//! What moves a connection's bytes: opens it, writes what was sent, delivers what is answered, and gives it up where an
//! answer is overdue. One task for each connection, on the client's runtime.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::connection::Shared;
use super::dial::{self, Dial, Link};
use crate::proto::reply::{Failure, Reply, parse};
use crate::value::clock::{BootInstant, LOOK};
use crate::value::error::ConnectionError;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// What one look at the socket takes in.
const CHUNK: usize = 16 * 1024;

/// Opens a connection and drives it to its end.
pub(super) fn drive(shared: Arc<Shared>, dial: Arc<Dial>) -> impl Future<Output = ()> + Send {
    // There from the beginning: a runtime that is gone drops the future without polling it.
    let end = End(shared);
    async move {
        let shared = &end.0;
        while let Some(link) = open(shared, &dial).await {
            shared.open();
            let failure = match link {
                Link::Tcp(stream) => pump(shared, stream).await,
                #[cfg(unix)]
                Link::Unix(stream) => pump(shared, stream).await,
                Link::Crate(connection) => relay(shared, connection).await,
            };
            match failure {
                Failure::Unknown(error) if shared.limits.impatient => shared.reopen(error),
                failure => return shared.close(failure),
            }
        }
    }
}

/// However the driver ends, with its runtime too, nobody waits on for an answer.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.close(Failure::Gone);
    }
}

/// `None` if it is closed, or nobody wants it any more.
async fn open(shared: &Shared, dial: &Dial) -> Option<Link> {
    let limits = shared.limits;
    let mut pause = FIRST_PAUSE;
    loop {
        let began = BootInstant::now();
        let opening = tokio::time::timeout(limits.connect, dial.open());
        let error = match while_wanted(shared, opening).await? {
            Ok(Ok(link)) => return Some(link),
            Ok(Err(error)) => error,
            Err(_) => ConnectionError::silence("no connection", limits.connect),
        };
        let others_wait = shared.fail_opening(&error, began);
        if !limits.impatient {
            if others_wait {
                continue;
            }
            shared.close(Failure::NotSent(error));
            return None;
        }
        while_wanted(shared, tokio::time::sleep(pause)).await?;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Runs to the end of `future`, telling those who have waited too long meanwhile.
async fn while_wanted<F: Future>(shared: &Shared, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut timer = pin!(tokio::time::sleep(LOOK));
    poll_fn(|context| {
        shared.register(context.waker());
        if shared.is_dropped() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        while let Some(due) = shared.expire_unsent(BootInstant::now()) {
            let left = due.remaining().min(LOOK);
            timer.as_mut().reset(tokio::time::Instant::now() + left);
            if timer.as_mut().poll(context).is_pending() {
                break;
            }
        }
        Poll::Pending
    })
    .await
}

/// When the oldest request is overdue.
struct Overdue {
    timer: Pin<Box<Sleep>>,
    is_set: bool,
}

impl Overdue {
    fn new() -> Overdue {
        Overdue {
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            is_set: false,
        }
    }

    fn poll(&mut self, shared: &Shared, context: &mut Context<'_>) -> Poll<ConnectionError> {
        loop {
            if !self.is_set {
                let Some((due, limit)) = shared.next_due() else {
                    return Poll::Pending;
                };
                let left = due.remaining();
                if left.is_zero() {
                    return Poll::Ready(ConnectionError::silence("no reply", limit));
                }
                // Timers stand still in suspend, where the boot-time clock goes on.
                let left = left.min(LOOK);
                self.timer
                    .as_mut()
                    .reset(tokio::time::Instant::now() + left);
                self.is_set = true;
            }
            ready!(self.timer.as_mut().poll(context));
            self.is_set = false;
        }
    }
}

/// Bytes on their way through a stream.
struct Pump<'a, S> {
    shared: &'a Shared,
    stream: S,
    out: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    filled: usize,
    replies: Vec<Reply>,
    overdue: Overdue,
    is_gathering: bool,
}

async fn pump<S: AsyncRead + AsyncWrite + Unpin>(shared: &Shared, stream: S) -> Failure {
    let mut pump = Pump {
        shared,
        stream,
        out: Vec::new(),
        written: 0,
        input: vec![0; CHUNK],
        filled: 0,
        replies: Vec::new(),
        overdue: Overdue::new(),
        is_gathering: false,
    };
    poll_fn(|context| pump.poll(context)).await
}

impl<S: AsyncRead + AsyncWrite + Unpin> Pump<'_, S> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Failure> {
        let error = match self.gather(context) {
            true => Poll::Pending,
            false => self.poll_write(context),
        };
        if let Poll::Ready(Err(error)) = error {
            return Poll::Ready(Failure::Unknown(error));
        }
        if let Poll::Ready(error) = self.poll_read(context) {
            return Poll::Ready(Failure::Unknown(error));
        }
        if self.shared.is_done() && self.written == self.out.len() {
            return Poll::Ready(Failure::Gone);
        }
        self.overdue
            .poll(self.shared, context)
            .map(Failure::Unknown)
    }

    /// Whether writing is put off, once, until the tasks that are ready have sent theirs too: one call of the system then
    /// takes what all have sent.
    fn gather(&mut self, context: &mut Context<'_>) -> bool {
        self.is_gathering = !self.is_gathering && self.shared.has_out();
        if self.is_gathering {
            context.waker().wake_by_ref();
        }
        self.is_gathering
    }

    /// Writes until there is nothing more, or the stream takes no more.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        loop {
            if self.written == self.out.len() {
                self.written = 0;
                self.shared.take_out(&mut self.out, context.waker());
                if self.out.is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
            let left = &self.out[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, left)) {
                Ok(0) => return Poll::Ready(Err(ConnectionError::new("the connection is closed"))),
                Ok(count) => self.written += count,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Reads and delivers until there is nothing more; ready at the end of the stream.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<ConnectionError> {
        loop {
            if self.input.len() - self.filled < CHUNK / 2 {
                self.input.resize(self.input.len() * 2, 0);
            }
            let mut buffer = ReadBuf::new(&mut self.input[self.filled..]);
            match ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer)) {
                Ok(()) if buffer.filled().is_empty() => {
                    return Poll::Ready(ConnectionError::new("the server closed the connection"));
                }
                Ok(()) => self.filled += buffer.filled().len(),
                Err(error) => return Poll::Ready(error.into()),
            }
            if self.deliver().is_none() {
                return Poll::Ready(ConnectionError::new("what the server sends is no RESP2"));
            }
        }
    }

    fn deliver(&mut self) -> Option<()> {
        let mut used = 0;
        while let Some((reply, length)) = parse(&self.input[used..self.filled]).ok()? {
            self.replies.push(reply);
            used += length;
        }
        self.input.copy_within(used..self.filled, 0);
        self.filled -= used;
        self.shared.deliver(&mut self.replies).then_some(())
    }
}

/// Sends what there is to be sent over a connection of the `redis` crate: one that the application gave, or one with TLS.
async fn relay(shared: &Shared, connection: MultiplexedConnection) -> Failure {
    let mut answers = FuturesOrdered::new();
    let mut overdue = Overdue::new();
    let mut out = Vec::new();
    poll_fn(|context| {
        loop {
            shared.take_out(&mut out, context.waker());
            if !out.is_empty() {
                answers.push_back(dial::ask(connection.clone(), std::mem::take(&mut out)));
            }
            match answers.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(mut replies))) => {
                    if !shared.deliver(&mut replies) {
                        let error = ConnectionError::new("more replies than requests");
                        return Poll::Ready(Failure::Unknown(error));
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Failure::Unknown(error)),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        if shared.is_done() && answers.is_empty() {
            return Poll::Ready(Failure::Gone);
        }
        overdue.poll(shared, context).map(Failure::Unknown)
    })
    .await
}
