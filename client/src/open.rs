//! Opens connections to an address. Over TCP without TLS, one write sends what several tasks request.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::yield_now;

/// Counts the requests under way over a link: each call subscribes until it returns.
pub(crate) type Asking = Arc<watch::Sender<()>>;

/// Opens a connection.
pub(crate) async fn open(
    address: ConnectionInfo,
    asking: Asking,
) -> RedisResult<MultiplexedConnection> {
    let ConnectionAddr::Tcp(host, port) = address.addr() else {
        let client = redis::Client::open(address)?;
        return client
            .get_multiplexed_async_connection_with_config(&config())
            .await;
    };
    let stream = dial(host, *port, address.tcp_settings()).await?;
    let stream = Gathering {
        stream,
        asking,
        gathered: 0,
    };
    let settings = address.redis_settings();
    let opening = MultiplexedConnection::new_with_config(settings, stream, config());
    let (connection, driver) = opening.await?;
    tokio::spawn(driver);
    Ok(connection)
}

/// Connects to the host's address that answers first.
async fn dial(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let addresses = lookup_host((host, port)).await?;
    let mut dialing: FuturesUnordered<_> = addresses.map(TcpStream::connect).collect();
    let mut error = io::ErrorKind::AddrNotAvailable.into();
    while let Some(dialed) = dialing.next().await {
        match dialed {
            Ok(stream) => {
                stream.set_nodelay(settings.nodelay())?;
                if let Some(probes) = settings.keepalive() {
                    SockRef::from(&stream).set_tcp_keepalive(probes)?;
                }
                return Ok(stream);
            }
            Err(why) => error = why,
        }
    }
    Err(error)
}

/// Holds requests back while many tasks share the connection, so that one write sends several. Without it tokio runs the connection's task after
/// each of theirs, and each request is a write that wakes the server: most of the client's processor time.
struct Gathering {
    stream: TcpStream,
    asking: Asking,
    /// How many bytes it held back when it last did; 0 after a write.
    gathered: usize,
}

/// With so many requests under way holding them back saves time. (With 8 it costs some.)
const MANY: usize = 12;

/// So many bytes, some six requests, are enough: the server works on them while other tasks request more.
const ENOUGH: usize = 1_024;

impl AsyncWrite for Gathering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let nothing_came = self.gathered == bytes.len();
        let are_many = self.asking.receiver_count() >= MANY;
        if are_many && !nothing_came && bytes.len() < ENOUGH {
            self.gathered = bytes.len();
            // It is asked again once this worker of the runtime has no other task to run, or has run 61, and at each further request or reply.
            let _ = pin!(yield_now()).poll(context);
            return Poll::Pending;
        }
        self.gathered = 0;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl AsyncRead for Gathering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

/// How this crate opens connections: every call has a limit of its own.
fn config() -> AsyncConnectionConfig {
    #[cfg(feature = "tls")]
    choose_crypto_provider();
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        // However many tasks ask at once, none of them waits for another one to be sent.
        .set_pipeline_buffer_size(10_000)
}

/// `redis` takes the one that is the process's default. If the application has chosen none, and its build has several,
/// there would be none.
#[cfg(feature = "tls")]
fn choose_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been faster, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
}
