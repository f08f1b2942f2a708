//! Where connections come from: a URL, or whatever the application supplies.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue,
    IntoConnectionInfo, RedisError, RedisResult,
};

use crate::error::Error;
use crate::link::Connect;
use crate::node::Identity;

/// The address that a URL names, with what every connection of this crate is opened with.
pub(crate) fn address(url: &str) -> Result<ConnectionInfo, Error> {
    let address = url.into_connection_info().map_err(|error| {
        let advice = advice(url, &error.to_string());
        Error::Invalid(format!("{url:?} is no server's address: {advice}"))
    })?;
    let settings = address.redis_settings().clone();
    Ok(probed(address)
        .set_redis_settings(settings.set_lib_name("mortise-client", env!("CARGO_PKG_VERSION"))))
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

/// The address with TCP keepalive. A connection may be idle for hours, and die meanwhile without a word (a firewall that
/// forgot it, a machine that lost power). The kernel's probes find that within half a minute.
fn probed(address: ConnectionInfo) -> ConnectionInfo {
    let probes = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    // Small commands share a connection: none waits for the last one's acknowledgement.
    let tcp = address
        .tcp_settings()
        .clone()
        .set_nodelay(true)
        .set_keepalive(probes);
    address.set_tcp_settings(tcp)
}

/// Another host and port, with all else as in this address.
pub(crate) fn at(address: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let other = match address.addr() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => {
            let (insecure, tls_params) = (*insecure, tls_params.clone());
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure,
                tls_params,
            }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    address.clone().set_addr(other)
}

/// Opens connections to an address.
pub(crate) fn to_address(address: ConnectionInfo) -> Connect {
    let advice = match address.addr() {
        ConnectionAddr::TcpTls { .. } => {
            " (if the port does not speak TLS, write redis:// instead of rediss://)"
        }
        ConnectionAddr::Tcp(..) => " (if the port speaks TLS, write rediss:// instead of redis://)",
        _ => "",
    };
    let open = move || {
        let client = redis::Client::open(address.clone());
        async move {
            let (client, config) = (client?, config());
            let opened = client.get_multiplexed_async_connection_with_config(&config);
            introduce(opened.await?, None).await
        }
        .boxed()
    };
    Connect {
        open: Arc::new(open),
        advice,
    }
}

/// Tells the server who connects. Returns what it says instead of the connection that it closes: that it has too many
/// clients, or is protected. A user who may not run these commands takes locks all the same.
async fn introduce(
    mut connection: MultiplexedConnection,
    name: Option<&str>,
) -> RedisResult<MultiplexedConnection> {
    let mut commands = [redis::cmd("CLIENT"), redis::cmd("CLIENT")];
    match name {
        Some(name) => {
            commands[0].arg("SETNAME").arg(name);
            commands[1].arg("SETNAME").arg(name);
        }
        None => {
            commands[0]
                .arg("SETINFO")
                .arg("LIB-NAME")
                .arg("mortise-client");
            let version = env!("CARGO_PKG_VERSION");
            commands[1].arg("SETINFO").arg("LIB-VER").arg(version);
        }
    }
    let mut refusal = None;
    for command in &commands {
        match connection.send_packed_command(command).await {
            Ok(redis::Value::ServerError(error)) => refusal = Some(error),
            Ok(_) => {}
            Err(error) => return Err(refusal.map_or(error, RedisError::from)),
        }
    }
    Ok(connection)
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

/// Has connections carry a name: `CLIENT SETNAME`.
pub(crate) fn named(connect: Connect, name: &str) -> Connect {
    let (open, name): (_, Arc<str>) = (connect.open, name.into());
    let open = move || {
        let (opening, name) = (open(), name.clone());
        async move { introduce(opening.await?, Some(&name)).await }.boxed()
    };
    Connect {
        open: Arc::new(open),
        advice: connect.advice,
    }
}

/// Has connections find out which process they lead to, which must not be one of the others of a quorum. A user without the right to
/// `INFO` may take locks all the same.
pub(crate) fn identified(connect: Connect, identity: Identity, others: Vec<Identity>) -> Connect {
    let open = connect.open;
    let open = move || {
        let (opening, identity, others) = (open(), identity.clone(), others.clone());
        async move {
            let mut connection = opening.await?;
            let mut command = redis::cmd("INFO");
            command.arg("server");
            let info = connection.send_packed_command(&command).await?;
            identity.set(&String::from_redis_value(info).unwrap_or_default());
            let id = identity.id();
            match id.is_some() && others.iter().any(|other| other.id() == id) {
                true => Err(RedisError::from((
                    ErrorKind::InvalidClientConfig,
                    "it is the same server as another one of this quorum, and would vote twice",
                ))),
                false => Ok(connection),
            }
        }
        .boxed()
    };
    Connect {
        open: Arc::new(open),
        advice: connect.advice,
    }
}

/// Connections that the application opens.
pub(crate) fn by<F, C>(connect: F) -> Connect
where
    F: Fn() -> C + Send + Sync + 'static,
    C: Future<Output = RedisResult<MultiplexedConnection>> + Send + 'static,
{
    let open = move || connect().boxed();
    Connect {
        open: Arc::new(open),
        advice: "",
    }
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
