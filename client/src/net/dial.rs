//! How a server is reached: an address, the primary that Sentinel names, or a connection that is there already.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, Pipeline, RedisError, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::proto::command::Command;
use crate::proto::reply::{Reply, parse};
use crate::value::error::ConnectionError;
use crate::value::sync::lock;

/// One server's address, and what it asks of those who connect.
pub(crate) type Address = ConnectionInfo;

/// How a server is reached.
pub(crate) struct Dial {
    way: Way,
    /// Used first, once.
    given: Mutex<Option<MultiplexedConnection>>,
    identity: Option<Identity>,
}

enum Way {
    Direct(Box<Address>),
    /// Asked each time: after a failover the primary is another one.
    #[cfg(feature = "sentinel")]
    Sentinel(Arc<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
}

/// An open connection.
pub(super) enum Link {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
    /// Of the `redis` crate: TLS, or given.
    Crate(MultiplexedConnection),
}

/// The `run_id` of each of several servers, to find one that is there twice.
#[derive(Debug, Default)]
pub(crate) struct Identities(Mutex<Vec<(usize, String)>>);

/// One of several servers that must not be the same.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) of: Arc<Identities>,
    pub(crate) number: usize,
}

impl Identities {
    /// Two servers that are the same one.
    pub(crate) fn twins(&self) -> Option<(usize, usize)> {
        let known = lock(&self.0);
        let twin = |(number, id): &(usize, String)| {
            let other = known.iter().find(|it| it.0 < *number && it.1 == *id)?;
            Some((other.0, *number))
        };
        known.iter().find_map(twin)
    }
}

impl Identity {
    fn check(&self, id: String) -> Result<(), ConnectionError> {
        let mut known = lock(&self.of.0);
        known.retain(|(number, _)| *number != self.number);
        let twin = known.iter().any(|(_, other)| *other == id);
        known.push((self.number, id));
        match twin {
            true => Err(ConnectionError::new(
                "it is the same server as another one of this quorum, and would vote twice",
            )),
            false => Ok(()),
        }
    }
}

impl Dial {
    pub(crate) fn direct(address: Address) -> Dial {
        Dial::by(Way::Direct(Box::new(address)))
    }

    #[cfg(feature = "sentinel")]
    pub(crate) fn sentinel(
        sentinel: Arc<tokio::sync::Mutex<redis::sentinel::SentinelClient>>,
    ) -> Dial {
        Dial::by(Way::Sentinel(sentinel))
    }

    fn by(way: Way) -> Dial {
        Dial {
            way,
            given: Mutex::new(None),
            identity: None,
        }
    }

    /// The first connection is this one.
    pub(crate) fn given(mut self, connection: Option<MultiplexedConnection>) -> Dial {
        self.given = Mutex::new(connection);
        self
    }

    /// Refuses to connect where another one of several servers is the same.
    pub(crate) fn identified(mut self, identity: Option<Identity>) -> Dial {
        self.identity = identity;
        self
    }

    pub(super) async fn open(&self) -> Result<Link, ConnectionError> {
        if let Some(connection) = lock(&self.given).take() {
            return Ok(Link::Crate(connection));
        }
        match &self.way {
            Way::Direct(address) => self.open_at(address).await,
            #[cfg(feature = "sentinel")]
            Way::Sentinel(sentinel) => {
                let client = sentinel.lock().await.async_get_client().await;
                let client = client.map_err(|error| told(&error))?;
                self.open_at(client.get_connection_info()).await
            }
        }
    }

    async fn open_at(&self, address: &Address) -> Result<Link, ConnectionError> {
        match address.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let mut stream = TcpStream::connect((host.as_str(), *port)).await?;
                attend(&stream, address.tcp_settings())?;
                self.shake_hands(&mut stream, address).await?;
                Ok(Link::Tcp(stream))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let mut stream = tokio::net::UnixStream::connect(path).await?;
                self.shake_hands(&mut stream, address).await?;
                Ok(Link::Unix(stream))
            }
            _ => self.open_by_crate(address).await,
        }
    }

    /// TLS: the certificates of a `redis::Client` are known to it alone.
    async fn open_by_crate(&self, address: &Address) -> Result<Link, ConnectionError> {
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let tcp = attentive(address.tcp_settings().clone());
        let client = redis::Client::open(address.clone().set_tcp_settings(tcp));
        let opening = async {
            let client = client?;
            let connection = client.get_multiplexed_async_connection_with_config(&config);
            let mut connection = connection.await?;
            let mut info = redis::cmd("INFO");
            let info = connection.send_packed_command(info.arg("server")).await?;
            Ok((connection, info))
        };
        let (connection, info) = opening.await.map_err(|error| told(&error))?;
        self.identify(&reply(info))?;
        Ok(Link::Crate(connection))
    }

    /// Asks who is there, having said who asks.
    async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        address: &Address,
    ) -> Result<(), ConnectionError> {
        let settings = address.redis_settings();
        let (mut out, mut words) = (Vec::new(), 0);
        let mut say = |words_of: &[&[u8]]| {
            Command::Plain(words_of).encode(&mut out);
            words += 1;
        };
        match (settings.username(), settings.password()) {
            (Some(user), Some(password)) => say(&[b"AUTH", user.as_bytes(), password.as_bytes()]),
            (None, Some(password)) => say(&[b"AUTH", password.as_bytes()]),
            _ => {}
        }
        if settings.db() != 0 {
            say(&[b"SELECT", settings.db().to_string().as_bytes()]);
        }
        say(&[b"INFO", b"server"]);
        stream.write_all(&out).await?;
        let mut answers = Answers::default();
        for left in (0..words).rev() {
            match answers.next(stream).await? {
                // Who may not ask may take locks all the same.
                Reply::Error(line) if left > 0 || line.starts_with("NOAUTH") => {
                    return Err(ConnectionError::new(line));
                }
                last if left == 0 => self.identify(&last)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn identify(&self, info: &Reply) -> Result<(), ConnectionError> {
        let (Some(identity), Reply::Text(info)) = (&self.identity, info) else {
            return Ok(());
        };
        let info = String::from_utf8_lossy(info);
        let id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        id.map_or(Ok(()), |id| identity.check(id.trim().to_owned()))
    }
}

/// Replies as they come, outside of a row.
#[derive(Default)]
struct Answers(Vec<u8>);

impl Answers {
    async fn next<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
    ) -> Result<Reply, ConnectionError> {
        loop {
            match parse(&self.0) {
                Ok(Some((reply, used))) => {
                    self.0.drain(..used);
                    return Ok(reply);
                }
                Ok(None) => {}
                Err(_) => return Err(ConnectionError::new("what answers is no Redis server")),
            }
            if stream.read_buf(&mut self.0).await? == 0 {
                return Err(ConnectionError::new("the server closed the connection"));
            }
        }
    }
}

const IDLE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(25);

/// Nothing may be sent for hours. So that a connection which has died meanwhile without a word (a firewall that forgot it, a
/// machine that lost power) is noticed within half a minute, it is probed by the kernel, unless the application has said
/// how; and what was written is acknowledged in that time.
fn attentive(tcp: TcpSettings) -> TcpSettings {
    let tcp = tcp.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let tcp = match tcp.user_timeout() {
        Some(_) => tcp,
        None => tcp.set_user_timeout(UNACKNOWLEDGED),
    };
    if tcp.keepalive().is_some() {
        return tcp;
    }
    let probes = TcpKeepalive::new()
        .with_time(IDLE)
        .with_interval(INTERVAL)
        .with_retries(PROBES);
    tcp.set_keepalive(probes)
}

/// The same for a stream of our own.
fn attend(stream: &TcpStream, settings: &TcpSettings) -> std::io::Result<()> {
    let settings = attentive(settings.clone());
    let socket = SockRef::from(stream);
    // Small commands share a connection: none waits for the last one's acknowledgement.
    socket.set_tcp_nodelay(true)?;
    if let Some(probes) = settings.keepalive() {
        socket.set_tcp_keepalive(probes)?;
    }
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}

/// Sends commands, as they are on the wire, over a connection of the `redis` crate.
pub(super) async fn ask(
    mut connection: MultiplexedConnection,
    commands: Vec<u8>,
) -> Result<Vec<Reply>, ConnectionError> {
    let (mut pipeline, mut rest) = (Pipeline::new(), commands.as_slice());
    while let Ok(Some((Reply::Array(args), used))) = parse(rest) {
        rest = &rest[used..];
        let mut cmd = redis::Cmd::new();
        for arg in args {
            if let Reply::Text(arg) = arg {
                cmd.arg(arg);
            }
        }
        pipeline.add_command(cmd);
    }
    let count = pipeline.len();
    let replies = connection.req_packed_commands(&pipeline, 0, count).await;
    let replies = replies.map_err(|error| told(&error))?;
    Ok(replies.into_iter().map(reply).collect())
}

fn reply(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(n) => Reply::Int(n),
        Value::BulkString(text) => Reply::Text(text),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            Reply::Text(text.into_bytes())
        }
        Value::Okay => Reply::Text(b"OK".to_vec()),
        Value::Array(items) | Value::Set(items) => {
            Reply::Array(items.into_iter().map(reply).collect())
        }
        Value::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(name, value)| [name, value]);
            Reply::Array(flat.map(reply).collect())
        }
        Value::ServerError(error) => {
            let details = error.details().unwrap_or_default();
            Reply::Error(format!("{} {details}", error.code()).trim_end().to_owned())
        }
        Value::Boolean(is) => Reply::Int(i64::from(is)),
        Value::Double(n) => Reply::Text(n.to_string().into_bytes()),
        other => Reply::Text(format!("{other:?}").into_bytes()),
    }
}

fn told(error: &RedisError) -> ConnectionError {
    match error.is_timeout() {
        true => std::io::Error::new(std::io::ErrorKind::TimedOut, error.to_string()).into(),
        false => ConnectionError::new(error.to_string()),
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.way {
            Way::Direct(address) => f.debug_tuple("Direct").field(address.addr()).finish(),
            #[cfg(feature = "sentinel")]
            Way::Sentinel(_) => f.write_str("Sentinel"),
        }
    }
}
