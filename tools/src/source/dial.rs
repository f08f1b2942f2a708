//! Opening connections: to the addresses given, and to others in the same way.

use std::time::Duration;

use redis::{Client, Cmd, Connection, ConnectionAddr, ConnectionInfo, TlsCertificates, Value};

use crate::text;

/// A server, and the way to it.
#[derive(Debug, Clone)]
pub(super) struct Address {
    info: ConnectionInfo,
    certificates: Option<TlsCertificates>,
}

/// A connection that never waits for longer than its time-out, and is given up at the first error.
pub(super) struct Link {
    connection: Connection,
    /// The database that its commands are about, where that is known.
    db: Option<i64>,
}

impl Address {
    pub(super) fn new(info: ConnectionInfo, certificates: Option<TlsCertificates>) -> Address {
        // A failed setting would be one more reply to wait for.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        Address {
            info: info.set_redis_settings(settings),
            certificates,
        }
    }

    /// Another server to which the way is the same: user, password, TLS.
    pub(super) fn sibling(&self, host: &str, port: u16) -> Address {
        let host = host.to_owned();
        let addr = match self.info.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        Address {
            info: self.info.clone().set_addr(addr),
            certificates: self.certificates.clone(),
        }
    }

    /// The same server, without logging in.
    pub(super) fn without_login(&self) -> Address {
        let settings = redis::RedisConnectionInfo::default().set_skip_set_lib_name();
        Address {
            info: self.info.clone().set_redis_settings(settings),
            certificates: self.certificates.clone(),
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self.info.addr(), ConnectionAddr::TcpTls { .. })
    }

    /// The database that a connection begins in.
    pub(super) fn db(&self) -> u32 {
        u32::try_from(self.info.redis_settings().db()).unwrap_or(0)
    }

    /// The host, if it has one.
    pub(super) fn host(&self) -> Option<&str> {
        match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => Some(host),
            _ => None,
        }
    }

    /// `127.0.0.1:6379`, or the path of a socket.
    pub(super) fn name(&self) -> String {
        text::escaped(self.info.addr().to_string().as_bytes())
    }

    pub(super) fn open(&self, timeout: Duration) -> Result<Link, String> {
        let client = match (&self.certificates, self.is_tls()) {
            (Some(certificates), true) => {
                Client::build_with_tls(self.info.clone(), certificates.clone())
            }
            _ => Client::open(self.info.clone()),
        };
        let open = || {
            let connection = client?.get_connection_with_timeout(timeout)?;
            connection.set_read_timeout(Some(timeout))?;
            connection.set_write_timeout(Some(timeout))?;
            Ok(connection)
        };
        Ok(Link {
            connection: open().map_err(|error| in_words(&error, timeout))?,
            db: Some(self.info.redis_settings().db()),
        })
    }
}

impl Link {
    pub(super) fn db(&self) -> Option<i64> {
        self.db
    }

    /// It has to use another one.
    pub(super) fn set_db(&mut self, db: u32) {
        self.db = Some(i64::from(db));
    }

    /// It has refused to, at some point.
    pub(super) fn lose_db(&mut self) {
        self.db = None;
    }

    /// Sends all the commands, then reads the replies; errors of commands are among these.
    ///
    /// After an error the connection cannot be used any more: its replies may still come.
    pub(super) fn ask(
        &mut self,
        commands: &[Cmd],
        timeout: Duration,
    ) -> Result<Vec<Value>, String> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let in_words = |error: redis::RedisError| in_words(&error, timeout);
        let packed: Vec<u8> = commands.iter().flat_map(Cmd::get_packed_command).collect();
        self.connection
            .send_packed_command(&packed)
            .map_err(in_words)?;
        let replies = commands.iter().map(|_| self.connection.recv_response());
        replies.collect::<Result<_, _>>().map_err(in_words)
    }
}

fn in_words(error: &redis::RedisError, timeout: Duration) -> String {
    let text = if error.is_timeout() {
        format!("nothing within {}", text::time(timeout.as_millis() as u64))
    } else if error.is_connection_refusal() {
        "nothing listens there".to_owned()
    } else if error.is_connection_dropped() {
        "it closed the connection".to_owned()
    } else {
        error.to_string()
    };
    text::escaped(text.as_bytes())
}
