//! Opens connections: to an address, to the primary that Sentinel names, or over a connection that is there already.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use redis::{ConnectionAddr, ConnectionInfo, Pipeline, RedisError};
#[cfg(not(simulated))]
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::link::{Link, connection_error};
#[cfg(simulated)]
use crate::simulated::TcpStream;
use crate::value::{ConnectionError, lock};
use crate::wire::{Reply, server_info};

/// A server's address, with the password, database and TLS settings to connect with.
pub(crate) type Address = ConnectionInfo;

/// Opens connections to one server process.
#[derive(Debug)]
pub(crate) struct Connector {
    pub(super) target: Target,
    /// What connections to it are called: `CLIENT SETNAME`.
    pub(super) name: Option<Arc<str>>,
    /// The first connection, if the application has supplied one.
    pub(super) supplied: Mutex<Option<MultiplexedConnection>>,
    /// It must not be the same server as another one.
    pub(super) identity: Option<Identity>,
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

impl Connector {
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
        Some(Connector {
            target: Target::Address(Box::new(address)),
            name: self.name.clone(),
            supplied: Mutex::default(),
            identity: None,
        })
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
        let mut hello = Pipeline::new();
        if let Link::Stream(_) = link {
            let settings = address.redis_settings();
            if let Some(password) = settings.password() {
                hello.cmd("AUTH").arg(settings.username()).arg(password);
            }
            if settings.db() != 0 {
                hello.cmd("SELECT").arg(settings.db());
            }
        }
        // The server may refuse what follows: an older one does not know it, or the user may not run it.
        let needed = hello.len();
        if let Some(name) = &self.name {
            hello.cmd("CLIENT").arg("SETNAME").arg(&**name);
        }
        for (what, value) in [("LIB-NAME", "mortise-client"), ("LIB-VER", VERSION)] {
            hello.cmd("CLIENT").arg("SETINFO").arg(what).arg(value);
        }
        // A user without the right to INFO may take locks all the same.
        hello.cmd("INFO").arg("server");
        let replies = link.ask(&hello).await?;
        for (number, reply) in replies.iter().enumerate() {
            if let Reply::Error(line) = reply
                && (number < needed || line.starts_with("NOAUTH"))
            {
                return Err(ConnectionError::denied(line.as_str()));
            }
        }
        if let Some(Reply::Text(info)) = replies.last() {
            self.identify(info)?;
        }
        Ok(link)
    }

    fn identify(&self, info: &[u8]) -> Result<(), ConnectionError> {
        let id = server_info::run_id(info);
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
