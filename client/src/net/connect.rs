//! Opens connections: to an address, to the primary that Sentinel names, or over a connection that is there already.

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
use tokio::time::timeout;

#[cfg(simulated)]
use crate::simulated::TcpStream;
use crate::value::{ConnectionError, lock};
use crate::wire::Reply;
use crate::wire::reply::parse;

/// One server's address, and what it asks of those who connect.
pub(crate) type Address = ConnectionInfo;

/// Opens connections to one server process.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(super) target: Target,
    /// What connections to it are called: `CLIENT SETNAME`.
    name: Option<Arc<str>>,
    /// The first connection, if the application has supplied one.
    supplied: Mutex<Option<MultiplexedConnection>>,
    /// It must not be the same server as another one.
    identity: Option<Identity>,
}

/// Which process to connect to.
#[derive(Clone)]
pub(crate) enum Target {
    Address(Box<Address>),
    /// Asked each time: after a failover the primary is another one.
    #[cfg(feature = "sentinel")]
    Sentinel(Arc<tokio::sync::Mutex<redis::sentinel::SentinelClient>>),
}

impl Target {
    /// Whether it leads to another process after a failover.
    pub(crate) fn fails_over(&self) -> bool {
        !matches!(self, Target::Address(_))
    }
}

/// An open connection.
pub(super) enum Link {
    Stream(Stream),
    /// Of the `redis` crate: TLS, or supplied.
    Crate(MultiplexedConnection),
}

type Stream = Pin<Box<dyn AsyncStream + Send>>;

/// The `run_id` of each of several servers, to find one that is there twice.
#[derive(Debug, Default)]
pub(crate) struct Identities(Mutex<BTreeMap<usize, String>>);

/// One of several servers that must not be the same.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) among: Arc<Identities>,
    pub(crate) number: usize,
}

impl Identities {
    /// The numbers of two servers that are the same one.
    pub(crate) fn duplicates(&self) -> Option<[usize; 2]> {
        let known = lock(&self.0);
        let duplicate = |(number, id): (&usize, &String)| {
            let (other, _) = known.range(..number).find(|it| it.1 == id)?;
            Some([*other, *number])
        };
        known.iter().find_map(duplicate)
    }
}

/// What a handshake command is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The connection is of no use without it.
    Needed,
    /// The server may refuse it: an older one does not know it, or the user may not run it.
    Optional,
}

impl Connector {
    pub(super) fn new(target: Target, name: Option<Arc<str>>) -> Connector {
        Connector {
            target,
            name,
            supplied: Mutex::new(None),
            identity: None,
        }
    }

    /// The first connection is that one.
    pub(super) fn supplied(mut self, connection: Option<MultiplexedConnection>) -> Connector {
        self.supplied = Mutex::new(connection);
        self
    }

    /// It connects to no server that is one of several twice.
    pub(super) fn identified(mut self, identity: Option<Identity>) -> Connector {
        self.identity = identity;
        self
    }

    /// Connects to another node of the same cluster, `host:port`, in the same way.
    pub(super) fn to_node(&self, node: &str) -> Option<Connector> {
        let mut address = match &self.target {
            Target::Address(address) => Address::clone(address),
            #[cfg(feature = "sentinel")]
            Target::Sentinel(_) => return None,
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
        let target = Target::Address(Box::new(address));
        Some(Connector::new(target, self.name.clone()))
    }

    /// Opens a connection, for which the process found may take `limit`. Finding it through Sentinel has a limit of its own:
    /// the first Sentinels may be silent.
    pub(super) async fn open(&self, limit: Duration) -> Result<Link, ConnectionError> {
        if let Some(connection) = lock(&self.supplied).take() {
            return Ok(Link::Crate(connection));
        }
        let silence = |_| ConnectionError::silence("no connection", limit);
        let address = probed(self.find().await?);
        timeout(limit, self.connect(&address))
            .await
            .map_err(silence)?
    }

    async fn find(&self) -> Result<Address, ConnectionError> {
        match &self.target {
            Target::Address(address) => Ok(Address::clone(address)),
            #[cfg(feature = "sentinel")]
            Target::Sentinel(sentinel) => {
                const LOOK_UP: Duration = Duration::from_secs(10);
                #[cfg(feature = "tls")]
                choose_crypto_provider();
                let look_up = async { sentinel.lock().await.async_get_client().await };
                let found = timeout(LOOK_UP, look_up).await;
                let found = found.map_err(|_| ConnectionError::silence("no Sentinel", LOOK_UP))?;
                Ok(found
                    .map_err(connection_error)?
                    .get_connection_info()
                    .clone())
            }
        }
    }

    async fn connect(&self, address: &Address) -> Result<Link, ConnectionError> {
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
            _ => Link::Crate(open_by_crate(address).await.map_err(connection_error)?),
        };
        let (mut hello, mut steps) = (Pipeline::new(), Vec::new());
        if let Link::Stream(_) = link {
            let settings = address.redis_settings();
            if let Some(password) = settings.password() {
                hello.cmd("AUTH").arg(settings.username()).arg(password);
                steps.push(Step::Needed);
            }
            if settings.db() != 0 {
                hello.cmd("SELECT").arg(settings.db());
                steps.push(Step::Needed);
            }
        }
        if let Some(name) = &self.name {
            hello.cmd("CLIENT").arg("SETNAME").arg(&**name);
            steps.push(Step::Optional);
        }
        for (what, value) in [("LIB-NAME", "mortise-client"), ("LIB-VER", VERSION)] {
            hello.cmd("CLIENT").arg("SETINFO").arg(what).arg(value);
            steps.push(Step::Optional);
        }
        // Whoever may not ask for information may take locks all the same.
        hello.cmd("INFO").arg("server");
        steps.push(Step::Optional);
        let replies = link.ask(&hello).await?;
        for (step, reply) in steps.into_iter().zip(&replies) {
            match reply {
                Reply::Error(line) if step == Step::Needed || line.starts_with("NOAUTH") => {
                    return Err(ConnectionError::denied(line.as_str()));
                }
                _ => {}
            }
        }
        if let Some(Reply::Text(info)) = replies.last() {
            self.identify(&String::from_utf8_lossy(info))?;
        }
        Ok(link)
    }

    fn identify(&self, info: &str) -> Result<(), ConnectionError> {
        let id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        let (Some(Identity { among, number }), Some(id)) = (&self.identity, id) else {
            return Ok(());
        };
        let mut known = lock(&among.0);
        known.insert(*number, id.to_owned());
        match known.iter().any(|it| it.0 != number && it.1 == id) {
            true => Err(ConnectionError::new(
                "it is the same server as another one of this quorum, and would vote twice",
            )),
            false => Ok(()),
        }
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Link {
    async fn ask(&mut self, commands: &Pipeline) -> Result<Vec<Reply>, ConnectionError> {
        let packed = commands.get_packed_pipeline();
        let stream = match self {
            Link::Stream(stream) => stream,
            Link::Crate(connection) => return ask(connection.clone(), packed).await,
        };
        // A server that turns a client away says why, and closes: the reason may be there to read though writing fails.
        let written = stream.write_all(&packed).await;
        let (mut input, mut replies) = (Vec::new(), Vec::new());
        while replies.len() < commands.len() {
            let received = receive(stream, &mut input, &mut replies).await;
            match (received, replies.first()) {
                (Err(_), Some(Reply::Error(line))) => return Err(turned_away(line)),
                (received, _) => received?,
            }
        }
        written?;
        Ok(replies)
    }
}

/// Why a server closes a connection instead of serving it.
fn turned_away(line: &str) -> ConnectionError {
    match line.starts_with("DENIED") {
        true => ConnectionError::denied(line),
        false => ConnectionError::new(line),
    }
}

async fn open_by_crate(address: &Address) -> Result<MultiplexedConnection, RedisError> {
    #[cfg(feature = "tls")]
    choose_crypto_provider();
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let client = redis::Client::open(address.clone())?;
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
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
    let malformed = |_| ConnectionError::new("the server does not speak RESP2");
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

/// The address with TCP keepalive. A connection may be idle for hours, and die meanwhile without a word (a firewall that
/// forgot it, a machine that lost power). The kernel's probes find that within half a minute, unless the application has
/// configured its own. (What was sent over it has a limit of its own.)
fn probed(address: Address) -> Address {
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
    while let Some(count) = length(&mut rest, b'*') {
        let mut command = redis::Cmd::with_capacity(count, rest.len());
        for _ in 0..count {
            if let Some(length) = length(&mut rest, b'$') {
                command.arg(&rest[..length]);
                rest = &rest[length + 2..];
            }
        }
        pipeline.add_command(command);
    }
    let count = pipeline.len();
    let replies = connection.req_packed_commands(&pipeline, 0, count).await;
    let replies = replies.map_err(connection_error)?;
    Ok(replies.into_iter().map(reply).collect())
}

/// Takes off the length that a command of ours, or an argument of one, begins with.
fn length(rest: &mut &[u8], kind: u8) -> Option<usize> {
    let end = rest.iter().position(|it| *it == b'\r')?;
    let digits = rest[..end].strip_prefix(&[kind])?;
    let length = digits
        .iter()
        .fold(0, |length, digit| 10 * length + usize::from(digit - b'0'));
    *rest = &rest[end + 2..];
    Some(length)
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

fn connection_error(error: RedisError) -> ConnectionError {
    if error.kind() == redis::ErrorKind::AuthenticationFailed {
        return ConnectionError::denied(error.to_string());
    }
    match error.is_timeout() {
        true => ConnectionError::timed_out(error.to_string()),
        false => ConnectionError::new(error.to_string()),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Address(address) => address.addr().fmt(f),
            #[cfg(feature = "sentinel")]
            Target::Sentinel(_) => f.write_str("the primary that Sentinel names"),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
