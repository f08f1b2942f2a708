//! Asks one server for its state and its locks.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redis::{ErrorKind, RedisError, Value};

use crate::address::Address;
use crate::link::{Access, Link};

/// What a server has answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) took: Duration,
    /// The fields of INFO: of the server, of replication and of locks.
    pub(crate) info: HashMap<String, String>,
    /// The locks with the most waiters, most first. `None` if the user may not ask.
    pub(crate) top: Option<Vec<TopLock>>,
}

/// A lock with waiters.
#[derive(Debug, PartialEq)]
pub(crate) struct TopLock {
    pub(crate) key: Vec<u8>,
    pub(crate) db: i64,
    pub(crate) waiters: i64,
    pub(crate) oldest_ms: i64,
}

/// Why a server could not be asked: one of a few reasons, and the error's text.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) reason: &'static str,
    pub(crate) text: String,
}

/// Asks a server, over a connection of its own, for its figures and for the `top` locks with the most waiters.
///
/// # Errors
/// If it does not answer within `limit`, refuses, or has no locks because the module is not loaded.
pub(crate) fn ask(
    address: &Address,
    access: &Access,
    limit: Duration,
    top: usize,
) -> Result<Answer, Failure> {
    let began = Instant::now();
    let mut link = Link::open(address, access, limit).map_err(|error| Failure::of(&error))?;
    let mut info = HashMap::new();
    for section in ["server", "replication", "lock"] {
        let reply = link.ask(&["INFO", section]);
        info.extend(fields(&reply.map_err(|error| Failure::of(&error))?));
    }
    if !info.contains_key("lock_locks") {
        return Err(Failure {
            reason: "no_module",
            text: "the module is not loaded: INFO lock is empty".to_owned(),
        });
    }
    let top = match link.ask(&["LOCK.TOP", "COUNT", &top.max(1).to_string()]) {
        Ok(reply) => Some(top_locks(&reply)),
        // The user may see how many requests wait, but not at which locks.
        Err(error) if error.code() == Some("NOPERM") => None,
        Err(error) => return Err(Failure::of(&error)),
    };
    Ok(Answer {
        took: began.elapsed(),
        info,
        top,
    })
}

impl Failure {
    /// An unexpected failure; the log has the details.
    pub(crate) fn bug() -> Self {
        Self {
            reason: "other",
            text: "a bug in the exporter: its log has more".to_owned(),
        }
    }

    fn of(error: &RedisError) -> Self {
        let denied = ["NOAUTH", "NOPERM", "WRONGPASS"];
        let reason = match error.code() {
            _ if error.kind() == ErrorKind::AuthenticationFailed => "denied",
            Some(code) if denied.contains(&code) => "denied",
            Some("LOADING") => "loading",
            _ if error.is_timeout() => "timeout",
            _ if error.is_io_error() => "connection",
            _ => "other",
        };
        Self {
            reason,
            text: error.to_string(),
        }
    }
}

/// The fields of INFO by name.
fn fields(reply: &Value) -> Vec<(String, String)> {
    let text = match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    };
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim_end().to_owned()))
        .collect()
}

/// The entries of LOCK.TOP; malformed ones are left out.
fn top_locks(reply: &Value) -> Vec<TopLock> {
    let entries = reply.as_sequence().unwrap_or_default();
    let lock = |entry: &Value| {
        let (mut key, mut db, mut waiters, mut oldest_ms) = (None, 0, 0, 0);
        for (name, value) in entry.as_map_iter()? {
            let Value::BulkString(name) = name else {
                continue;
            };
            match (&name[..], value) {
                (b"key", Value::BulkString(bytes)) => key = Some(bytes.clone()),
                (b"db", Value::Int(number)) => db = *number,
                (b"waiters", Value::Int(number)) => waiters = *number,
                (b"oldest", Value::Int(number)) => oldest_ms = *number,
                _ => {}
            }
        }
        Some(TopLock {
            key: key?,
            db,
            waiters,
            oldest_ms,
        })
    };
    entries.iter().filter_map(lock).collect()
}
