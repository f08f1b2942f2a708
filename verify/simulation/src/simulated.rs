//! What the client's code uses here instead of the machine's: clock, random numbers, tasks and
//! connections. `cfg(simulated)` in `client/src` marks the places.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use uuid::Uuid;

use crate::network::Dialled;
use crate::parts::{ConnId, ProcessId};
use crate::referee;
use crate::world::{self, inside, is_inside, this_process, with};

/// The boot-time clock of the current process.
pub(crate) fn since_boot() -> Duration {
    let shown = match is_inside() {
        true => with(|world| world.processes[this_process()].clock.at(world.now())),
        // The world has ended, and its tasks are dropped.
        false => 0,
    };
    Duration::from_micros(shown)
}

pub(crate) fn uuid() -> Uuid {
    let (one, two) = with(|world| (world.names.next(), world.names.next()));
    let bytes = (u128::from(one) << 64 | u128::from(two)).to_be_bytes();
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// Makes the task belong to the current process.
pub(crate) fn of_this_process<F: Future>(task: F) -> OfProcess<F> {
    OfProcess::new(this_process(), task)
}

/// A task that runs only while its process does.
pub(crate) struct OfProcess<F> {
    process: ProcessId,
    task: Option<Pin<Box<F>>>,
}

impl<F: Future> OfProcess<F> {
    pub(crate) fn new(process: ProcessId, task: F) -> OfProcess<F> {
        let task = Some(Box::pin(task));
        OfProcess { process, task }
    }
}

impl<F: Future> Future for OfProcess<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let process = self.process;
        if !with(|world| world.may_run(process, context.waker())) {
            return Poll::Pending;
        }
        inside(process, || {
            let task = self.task.as_mut().expect("it is not over");
            let polled = task.as_mut().poll(context);
            if polled.is_ready() {
                self.task = None;
            }
            referee::update(process);
            polled
        })
    }
}

impl<F> Drop for OfProcess<F> {
    fn drop(&mut self) {
        inside(self.process, || self.task = None);
    }
}

/// What opens connections to a server of the simulation.
pub(crate) fn connect(
    node: usize,
) -> impl Fn() -> BoxFuture<'static, RedisResult<MultiplexedConnection>> + Send + Sync {
    move || {
        async move {
            let stream = TcpStream::connect(node).await?;
            let info = RedisConnectionInfo::default().set_skip_set_lib_name();
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let opened = MultiplexedConnection::new_with_config(&info, stream, config).await;
            let (connection, driver) = opened?;
            tokio::spawn(of_this_process(driver));
            Ok(connection)
        }
        .boxed()
    }
}

/// A connection to a server in memory.
#[derive(Debug)]
struct TcpStream(ConnId);

impl TcpStream {
    async fn connect(node: usize) -> io::Result<TcpStream> {
        let (id, latency) = with(|world| world.dial(this_process(), node));
        tokio::time::sleep(Duration::from_micros(latency)).await;
        match with(|world| world.dialled(id)) {
            Dialled::Open => Ok(TcpStream(id)),
            Dialled::Refused => Err(io::ErrorKind::ConnectionRefused.into()),
            Dialled::Silence => std::future::pending().await,
        }
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        with(|world| {
            let conn = &mut world.conns[self.0];
            if conn.inbox.is_empty() && !conn.is_cut {
                conn.reader = Some(context.waker().clone());
                return Poll::Pending;
            }
            let count = conn.inbox.len().min(buffer.remaining());
            for byte in conn.inbox.drain(..count) {
                buffer.put_slice(&[byte]);
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        with(|world| {
            if world.conns[self.0].is_cut {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            world.write(self.0, bytes);
            Poll::Ready(Ok(bytes.len()))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        if world::is_inside() {
            with(|world| world.close(self.0));
        }
    }
}
