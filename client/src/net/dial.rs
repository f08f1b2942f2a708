//! How a server is reached: an address, the primary that Sentinel names, or a connection that is there already.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
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
#[derive(Debug)]
pub(crate) struct Dial {
    pub(super) way: Way,
    /// The first connection, where there is one already.
    given: Mutex<Option<MultiplexedConnection>>,
    /// None is made to a server that another one is, too.
    identity: Option<Identity>,
}

#[derive(Clone)]
pub(crate) enum Way {
    Direct(Box<Address>),
    /// Asked each time: after a failover the primary is another one.
    #[cfg(feature = "sentinel")]
    Sentinel(Arc<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
}

impl Way {
    /// Whether it leads to another process after a failover.
    pub(crate) fn fails_over(&self) -> bool {
        !matches!(self, Way::Direct(_))
    }
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

/// One of several servers that must not be the same, by its number.
pub(crate) type Identity = (Arc<Identities>, usize);

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
    pub(super) fn new(
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

    /// Another node of the same cluster, `host:port`, is reached likewise.
    pub(super) fn to_node(&self, node: &str) -> Option<Dial> {
        let mut address = match &self.way {
            Way::Direct(address) => Address::clone(address),
            #[cfg(feature = "sentinel")]
            Way::Sentinel(_) => return None,
        };
        let (name, number) = node.rsplit_once(':').unwrap_or((node, ""));
        let mut addr = address.addr().clone();
        if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } =
            &mut addr
        {
            // One that makes no sense leads nowhere.
            (*host, *port) = (name.to_owned(), number.parse().unwrap_or(0));
        }
        address = address.set_addr(addr);
        Some(Dial::new(Way::Direct(Box::new(address)), None, None))
    }

    pub(super) async fn open(&self) -> Result<Link, ConnectionError> {
        if let Some(connection) = lock(&self.given).take() {
            return Ok(Link::Crate(connection));
        }
        let address = attentive(match &self.way {
            Way::Direct(address) => Address::clone(address),
            #[cfg(feature = "sentinel")]
            Way::Sentinel(sentinel) => {
                let client = sentinel.lock().await.async_get_client().await;
                client.map_err(told)?.get_connection_info().clone()
            }
        });
        let mut hello = Pipeline::new();
        let mut link = match address.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                #[cfg(not(simulated))]
                apply(address.tcp_settings(), &stream)?;
                Link::Stream(Box::pin(stream))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                Link::Stream(Box::pin(tokio::net::UnixStream::connect(path).await?))
            }
            // The certificates of a `redis::Client` are known to it alone.
            _ => Link::Crate(open_by_crate(&address).await.map_err(told)?),
        };
        if let Link::Stream(_) = link {
            let settings = address.redis_settings();
            if let Some(password) = settings.password() {
                hello.cmd("AUTH").arg(settings.username()).arg(password);
            }
            if settings.db() != 0 {
                hello.cmd("SELECT").arg(settings.db());
            }
        }
        hello.cmd("INFO").arg("server");
        let replies = link.ask(&hello).await?;
        for (left, reply) in replies.iter().rev().enumerate() {
            match reply {
                // Who may not ask for information may take locks all the same.
                Reply::Error(line) if left > 0 || line.starts_with("NOAUTH") => {
                    return Err(ConnectionError::new(line.as_str()));
                }
                Reply::Text(info) if left == 0 => self.identify(&String::from_utf8_lossy(info))?,
                _ => {}
            }
        }
        Ok(link)
    }

    fn identify(&self, info: &str) -> Result<(), ConnectionError> {
        let id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        let (Some((identities, number)), Some(id)) = (&self.identity, id) else {
            return Ok(());
        };
        let mut known = lock(&identities.0);
        known.insert(*number, id.to_owned());
        match known.iter().any(|it| it.0 != number && it.1 == id) {
            true => Err(ConnectionError::new(
                "it is the same server as another one of this quorum, and would vote twice",
            )),
            false => Ok(()),
        }
    }
}

impl Link {
    async fn ask(&mut self, commands: &Pipeline) -> Result<Vec<Reply>, ConnectionError> {
        let packed = commands.get_packed_pipeline();
        let stream = match self {
            Link::Stream(stream) => stream,
            Link::Crate(connection) => return ask(connection.clone(), packed).await,
        };
        stream.write_all(&packed).await?;
        let (mut input, mut replies) = (Vec::new(), Vec::new());
        while replies.len() < commands.len() {
            receive(stream, &mut input, &mut replies).await?;
        }
        Ok(replies)
    }
}

async fn open_by_crate(address: &Address) -> Result<MultiplexedConnection, RedisError> {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let client = redis::Client::open(address.clone())?;
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
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

/// Nothing may be sent for hours. So that a connection which has died meanwhile without a word (a firewall that forgot it, a
/// machine that lost power) is noticed within half a minute, it is probed by the kernel, unless the application has said
/// how. (What was sent over it has a limit of its own.)
fn attentive(address: Address) -> Address {
    let tcp = address.tcp_settings().clone();
    let probes = TcpKeepalive::new()
        .with_time(IDLE)
        .with_interval(INTERVAL)
        .with_retries(PROBES);
    let probes = tcp.keepalive().cloned().unwrap_or(probes);
    // Small commands share a connection: none waits for the last one's acknowledgement.
    address.set_tcp_settings(tcp.set_nodelay(true).set_keepalive(probes))
}

#[cfg(not(simulated))]
fn apply(settings: &TcpSettings, stream: &TcpStream) -> io::Result<()> {
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
    ConnectionError::of(error.to_string(), error.is_timeout())
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Direct(address) => address.addr().fmt(f),
            #[cfg(feature = "sentinel")]
            Way::Sentinel(_) => f.write_str("the primary that Sentinel names"),
        }
    }
}

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
