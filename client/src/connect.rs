//! Where connections come from: a URL, Sentinel, or whatever the application supplies.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all, select_ok};
use futures_util::{FutureExt, TryFutureExt};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, RedisResult,
    Value,
};

use crate::error::Error;
use crate::open::{Asking, open};

/// What errors call a server whose address only the application knows.
pub(crate) const SOME_SERVER: &str = "the server";

/// Opens connections to a server. Clones are the same.
#[derive(Clone)]
pub(crate) struct Connect {
    /// What errors call the server.
    pub(crate) server: Arc<str>,
    pub(crate) open: Open,
    /// What may be wrong if that fails, for the text of the error.
    pub(crate) advice: &'static str,
}

pub(crate) type Open =
    Arc<dyn Fn(Asking) -> BoxFuture<'static, RedisResult<MultiplexedConnection>> + Send + Sync>;

impl Connect {
    pub(crate) fn new<F, C>(server: impl Into<Arc<str>>, open: F) -> Connect
    where
        F: Fn(Asking) -> C + Send + Sync + 'static,
        C: Future<Output = RedisResult<MultiplexedConnection>> + Send + 'static,
    {
        Connect {
            server: server.into(),
            open: Arc::new(move |asking| open(asking).boxed()),
            advice: "",
        }
    }

    /// Connections to an address.
    pub(crate) fn to(address: ConnectionInfo) -> Connect {
        let advice = match address.addr() {
            ConnectionAddr::TcpTls { .. } => {
                " (if the port does not speak TLS, write redis:// instead of rediss://)"
            }
            ConnectionAddr::Tcp(..) => {
                " (if the port speaks TLS, write rediss:// instead of redis://)"
            }
            _ => "",
        };
        let server = address.addr().to_string();
        let connect = Connect::new(server, move |asking| open(address.clone(), asking));
        let connect = connect.then(|connection| greet(connection, greetings()));
        Connect { advice, ..connect }
    }

    /// The same connections, each once `prepare` has prepared it. Its error is that of opening the connection.
    pub(crate) fn then<F, P>(self, prepare: F) -> Connect
    where
        F: Fn(MultiplexedConnection) -> P + Send + Sync + 'static,
        P: Future<Output = RedisResult<()>> + Send + 'static,
    {
        let (open, prepare) = (self.open.clone(), Arc::new(prepare));
        let open = move |asking| {
            let (opening, prepare) = (open(asking), prepare.clone());
            let opening = async move {
                let connection = opening.await?;
                prepare(connection.clone()).await?;
                Ok(connection)
            };
            opening.boxed()
        };
        let open = Arc::new(open);
        Connect { open, ..self }
    }

    /// The same connections, each of which waits for replies without limit: a call for letters takes longer than the 500 ms that `redis` allows.
    pub(crate) fn without_limit(self) -> Connect {
        let open = self.open.clone();
        let lifted = |mut connection: MultiplexedConnection| {
            connection.set_response_timeout(Duration::MAX);
            connection
        };
        let open = Arc::new(move |asking| open(asking).map_ok(lifted).boxed());
        Connect { open, ..self }
    }

    /// The same connections, with a name on the server.
    pub(crate) fn named(self, name: &str) -> Connect {
        let mut command = redis::cmd("CLIENT");
        command.arg("SETNAME").arg(name);
        // Sent twice, as a greeting is.
        self.then(move |connection| greet(connection, [command.clone(), command.clone()]))
    }

    /// Connections to the primary that these sentinels name. They are asked each time: after a failover it is another one.
    pub(crate) fn to_primary(sentinels: Vec<ConnectionInfo>, name: &str) -> Result<Connect, Error> {
        let Some(first) = sentinels.first().cloned() else {
            return Err(Error::Invalid("Sentinel needs at least one address".into()));
        };
        let (sentinels, name): (Arc<[ConnectionInfo]>, Arc<str>) = (sentinels.into(), name.into());
        let server = format!("the primary {name:?} that Sentinel names");
        Ok(Connect::new(server, move |asking| {
            let (first, sentinels, name) = (first.clone(), sentinels.clone(), name.clone());
            async move {
                // The first answer counts, because others may be silent.
                let answers = sentinels.iter().map(|it| primary(it, &name).boxed());
                let ((host, port), _) = select_ok(answers).await?;
                (Connect::to(at(&first, host, port)).open)(asking).await
            }
        }))
    }
}

/// Asks a sentinel for the primary's host and port.
async fn primary(sentinel: &ConnectionInfo, name: &str) -> RedisResult<(String, u16)> {
    // Sentinel has no databases.
    let settings = sentinel.redis_settings().clone().set_db(0);
    let sentinel = sentinel.clone().set_redis_settings(settings);
    let mut connection = (Connect::to(sentinel).open)(Asking::default()).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let address: Option<(String, u16)> = command.query_async(&mut connection).await?;
    let unknown = "no Sentinel knows this primary";
    address.ok_or_else(|| (ErrorKind::MasterNameNotFoundBySentinel, unknown).into())
}

/// The address that a URL names.
pub(crate) fn address(url: &str) -> Result<ConnectionInfo, Error> {
    let address = url.into_connection_info().map_err(|error| {
        let advice = advice(url, &error.to_string());
        Error::Invalid(format!("{url:?} is no server's address: {advice}"))
    })?;
    // A connection may be idle for hours, and die meanwhile without a word (a firewall that forgot it, a machine that lost
    // power). The kernel's probes find that within half a minute.
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    // Small commands share a connection: none waits for the last one's acknowledgement.
    let tcp = address.tcp_settings().clone().set_nodelay(true);
    // The greeting names the library.
    let settings = address.redis_settings().clone().set_skip_set_lib_name();
    Ok(address
        .set_tcp_settings(tcp.set_keepalive(probes))
        .set_redis_settings(settings))
}

/// What to write instead.
fn advice(url: &str, reason: &str) -> String {
    match url.split_once("://") {
        None => format!("write redis://{url}/"),
        Some(("rediss", _)) if !cfg!(feature = "tls") => {
            "TLS needs the feature `tls` of mortise-client".to_owned()
        }
        _ => format!("write redis://HOST:PORT/, or unix:///PATH ({reason})"),
    }
}

/// Another host and port, with all else as in this address.
pub(crate) fn at(address: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let mut addr = address.addr().clone();
    match &mut addr {
        ConnectionAddr::TcpTls {
            host: to, port: at, ..
        } => (*to, *at) = (host, port),
        other => *other = ConnectionAddr::Tcp(host, port),
    }
    address.clone().set_addr(addr)
}

/// What a connection of this crate says of itself.
fn greetings() -> [Cmd; 2] {
    let version = env!("CARGO_PKG_VERSION");
    [("LIB-NAME", "mortise-client"), ("LIB-VER", version)].map(|(what, value)| {
        let mut command = redis::cmd("CLIENT");
        command.arg("SETINFO").arg(what).arg(value);
        command
    })
}

/// Sends commands over a new connection. A server that has too many clients, or is protected, says so in reply to the first one
/// and closes the connection: that is the error then. A user who may not run these commands takes locks all the same.
async fn greet(connection: MultiplexedConnection, commands: [Cmd; 2]) -> RedisResult<()> {
    let send = |command| {
        let mut connection = connection.clone();
        async move { connection.send_packed_command(command).await }
    };
    let mut refusal = None;
    for answer in join_all(commands.iter().map(send)).await {
        match answer {
            Ok(Value::ServerError(error)) => refusal = Some(error),
            Ok(_) => {}
            Err(error) => return Err(refusal.map_or(error, RedisError::from)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_an_invalid_address_shows_a_valid_one() {
        let told = |url: &str| address(url).unwrap_err().to_string();
        assert!(told("127.0.0.1:6379").contains("redis://127.0.0.1:6379/"));
        assert!(told("http://a/").contains("redis://HOST:PORT/"));
        #[cfg(not(feature = "tls"))]
        assert!(told("rediss://a/").contains("feature `tls`"));
    }

    #[test]
    fn an_address_of_ip_version_6_keeps_its_port() {
        let address = address("redis://[::1]:7000/").unwrap();
        assert!(
            matches!(address.addr(), ConnectionAddr::Tcp(host, 7000) if host == "::1"),
            "{:?}",
            address.addr()
        );
    }
}
