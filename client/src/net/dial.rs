//! How a server is reached: an address, the primary that Sentinel names, or a connection that is there already.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Error as IoError, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::{AsyncStream, ConnectionLike, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, Pipeline, RedisError, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
#[cfg(not(simulated))]
use tokio::net::TcpStream;

use crate::proto::Reply;
use crate::proto::reply::parse;
#[cfg(simulated)]
use crate::simulated::TcpStream;
use crate::value::{ConnectionError, lock};

/// One server's address, and what it asks of those who connect.
pub(crate) type Address = ConnectionInfo;

/// How a server is reached.
pub(crate) struct Dial {
    pub(super) way: Way,
    given: Mutex<Option<MultiplexedConnection>>,
    identity: Option<Identity>,
}

#[derive(Clone)]
pub(crate) enum Way {
    Direct(Box<Address>),
    /// Asked each time: after a failover the primary is another one.
    #[cfg(feature = "sentinel")]
    Sentinel(Arc<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
}

/// An open connection.
pub(super) enum Link {
    Stream(Stream),
    /// Of the `redis` crate: TLS, or given.
    Crate(MultiplexedConnection),
}

type Stream = Pin<Box<dyn AsyncStream + Send>>;

/// The `run_id` of each of several servers, to find one that is there twice.
#[derive(Debug, Default)]
pub(crate) struct Identities(Mutex<BTreeMap<usize, String>>);

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
        let twin = |(number, id): (&usize, &String)| {
            let (other, _) = known.range(..number).find(|it| it.1 == id)?;
            Some((*other, *number))
        };
        known.iter().find_map(twin)
    }
}

impl Dial {
    /// The first connection is one that was given. None is made where another one of several servers is the same.
    pub(crate) fn new(
        way: Way,
        given: Option<MultiplexedConnection>,
        identity: Option<Identity>,
    ) -> Dial {
        let given = Mutex::new(given);
        Dial {
            way,
            given,
            identity,
        }
    }

    pub(super) async fn open(&self) -> Result<Link, ConnectionError> {
        if let Some(connection) = lock(&self.given).take() {
            return Ok(Link::Crate(connection));
        }
        let address = match &self.way {
            Way::Direct(address) => (**address).clone(),
            #[cfg(feature = "sentinel")]
            Way::Sentinel(sentinel) => {
                let client = sentinel.lock().await.async_get_client().await;
                client.map_err(told)?.get_connection_info().clone()
            }
        };
        let tcp = attentive(address.tcp_settings().clone());
        let stream: Stream = match address.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                #[cfg(not(simulated))]
                apply(&tcp, &stream)?;
                Box::pin(stream)
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Box::pin(tokio::net::UnixStream::connect(path).await?),
            // The certificates of a `redis::Client` are known to it alone.
            _ => {
                let opening = open_by_crate(address.set_tcp_settings(tcp));
                let (connection, info) = opening.await.map_err(told)?;
                self.identify(&reply(info))?;
                return Ok(Link::Crate(connection));
            }
        };
        self.shake_hands(stream, &address).await
    }

    /// Asks who is there, having said who asks.
    async fn shake_hands(
        &self,
        mut stream: Stream,
        address: &Address,
    ) -> Result<Link, ConnectionError> {
        let settings = address.redis_settings();
        let mut hello = Pipeline::new();
        if let Some(password) = settings.password() {
            hello.cmd("AUTH").arg(settings.username()).arg(password);
        }
        if settings.db() != 0 {
            hello.cmd("SELECT").arg(settings.db());
        }
        hello.cmd("INFO").arg("server");
        stream.write_all(&hello.get_packed_pipeline()).await?;
        let (mut input, mut replies) = (Vec::new(), Vec::new());
        while replies.len() < hello.len() {
            receive(&mut stream, &mut input, &mut replies).await?;
        }
        for (left, reply) in replies.iter().rev().enumerate() {
            // Who may not ask for information may take locks all the same.
            if let Reply::Error(line) = reply
                && (left > 0 || line.starts_with("NOAUTH"))
            {
                return Err(ConnectionError::new(line.as_str()));
            }
        }
        self.identify(&replies[hello.len() - 1])?;
        Ok(Link::Stream(stream))
    }

    fn identify(&self, info: &Reply) -> Result<(), ConnectionError> {
        let (Some(Identity { of, number }), Reply::Text(info)) = (&self.identity, info) else {
            return Ok(());
        };
        let info = String::from_utf8_lossy(info);
        let Some(id) = info.lines().find_map(|line| line.strip_prefix("run_id:")) else {
            return Ok(());
        };
        let mut known = lock(&of.0);
        known.insert(*number, id.to_owned());
        match known.iter().any(|it| it.0 != number && it.1 == id) {
            true => Err(ConnectionError::new(
                "it is the same server as another one of this quorum, and would vote twice",
            )),
            false => Ok(()),
        }
    }
}

async fn open_by_crate(address: Address) -> Result<(MultiplexedConnection, Value), RedisError> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let client = redis::Client::open(address)?;
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connection.await?;
    let info = redis::cmd("INFO").arg("server").to_owned();
    let info = connection.send_packed_command(&info).await?;
    Ok((connection, info))
}

/// Reads what there is, and takes the replies that are complete.
pub(super) async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    input: &mut Vec<u8>,
    replies: &mut Vec<Reply>,
) -> Result<(), ConnectionError> {
    if stream.read_buf(input).await? == 0 {
        return Err(ConnectionError::new("the server closed the connection"));
    }
    let mut used = 0;
    let malformed = |_| ConnectionError::new("what the server sends is no RESP2");
    while let Some((reply, length)) = parse(&input[used..]).map_err(malformed)? {
        replies.push(reply);
        used += length;
    }
    input.drain(..used);
    Ok(())
}

const IDLE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(25);

/// Nothing may be sent for hours. So that a connection which has died meanwhile without a word (a firewall that forgot it, a
/// machine that lost power) is noticed within half a minute, it is probed by the kernel, unless the application has said
/// how; and what was written is acknowledged in that time.
fn attentive(tcp: TcpSettings) -> TcpSettings {
    #[cfg(target_os = "linux")]
    let limit = tcp.user_timeout().unwrap_or(UNACKNOWLEDGED);
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(limit);
    let probes = TcpKeepalive::new()
        .with_time(IDLE)
        .with_interval(INTERVAL)
        .with_retries(PROBES);
    let probes = tcp.keepalive().cloned().unwrap_or(probes);
    // Small commands share a connection: none waits for the last one's acknowledgement.
    tcp.set_nodelay(true).set_keepalive(probes)
}

#[cfg(not(simulated))]
fn apply(settings: &TcpSettings, stream: &TcpStream) -> Result<(), IoError> {
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(settings.nodelay())?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    let probes = settings.keepalive();
    probes.map_or(Ok(()), |probes| socket.set_tcp_keepalive(probes))
}

/// Sends commands, as they are on the wire, over a connection of the `redis` crate.
pub(super) async fn ask(
    mut connection: MultiplexedConnection,
    commands: Vec<u8>,
) -> Result<Vec<Reply>, ConnectionError> {
    let (mut pipeline, mut rest) = (Pipeline::new(), commands.as_slice());
    while let Ok(Some((Reply::Array(words), used))) = parse(rest) {
        rest = &rest[used..];
        pipeline.add_command(redis::Cmd::new());
        for word in words {
            if let Reply::Text(word) = word {
                pipeline.arg(word);
            }
        }
    }
    let count = pipeline.len();
    let replies = connection.req_packed_commands(&pipeline, 0, count).await;
    Ok(replies.map_err(told)?.into_iter().map(reply).collect())
}

/// As RESP2 would have it.
fn reply(value: Value) -> Reply {
    match value {
        Value::Nil => Reply::Nil,
        Value::Int(n) => Reply::Int(n),
        Value::Boolean(is) => Reply::Int(i64::from(is)),
        Value::BulkString(text) => Reply::Text(text),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
            Reply::Text(text.into_bytes())
        }
        Value::Okay => Reply::Text(b"OK".to_vec()),
        Value::Double(n) => Reply::Text(n.to_string().into_bytes()),
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
        other => Reply::Text(format!("{other:?}").into_bytes()),
    }
}

fn told(error: RedisError) -> ConnectionError {
    match error.is_timeout() {
        true => IoError::new(ErrorKind::TimedOut, error.to_string()).into(),
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
