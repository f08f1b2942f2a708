//! A connection to a server or a Sentinel, which answers within a limit or not at all.

use std::fmt;
use std::time::{Duration, Instant};

use redis::{Client, Connection, RedisError, TlsCertificates, Value};

use crate::address::Address;

/// The user to log in as, and the certificates to trust.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    pub(crate) login: Login,
    /// Our own certificate, and those that are trusted instead of the system's.
    pub(crate) certificates: Option<TlsCertificates>,
}

/// How the exporter logs in to the servers.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// A connection.
pub(crate) struct Link {
    connection: Connection,
    began: Instant,
    limit: Duration,
}

impl Link {
    /// Connects. All requests over it have to be answered within `limit`, counted from now.
    pub(crate) fn open(
        address: &Address,
        access: &Access,
        limit: Duration,
    ) -> Result<Self, RedisError> {
        let began = Instant::now();
        let info = address.info()?;
        let mut settings = info
            .redis_settings()
            .clone()
            .set_lib_name("mortise-exporter", env!("CARGO_PKG_VERSION"));
        if let Some(username) = &access.login.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &access.login.password {
            settings = settings.set_password(password);
        }
        let info = info.set_redis_settings(settings);
        let client = match &access.certificates {
            Some(certificates) if address.is_tls() => {
                Client::build_with_tls(info, certificates.clone())
            }
            _ => Client::open(info),
        };
        Ok(Self {
            connection: client?.get_connection_with_timeout(limit)?,
            began,
            limit,
        })
    }

    /// Sends a command, and waits for its reply.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<Value, RedisError> {
        // A read must not wait for ever, and a limit of zero would mean no limit.
        let left = self.limit.saturating_sub(self.began.elapsed());
        let left = left.max(Duration::from_millis(1));
        self.connection.set_read_timeout(Some(left))?;
        self.connection.set_write_timeout(Some(left))?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut self.connection)
    }
}
