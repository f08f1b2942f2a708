//! Who holds a lock and who waits for it, as the server shows it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::error::Error;
use crate::name::Mode;
use crate::token::Token;

/// Who holds a lock and who waits for it.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// let guard = client.lock("report").read().await?;
/// let info = client.info("report").await?.expect("it is held");
/// assert_eq!((info.holders, info.waiters), (1, 0));
/// assert_eq!(info.holds[0].owner, guard.owner());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// How it is held; `None` where requests wait though nobody is known to hold it, as after a restart.
    pub mode: Option<Mode>,
    /// How many owners hold it.
    pub holders: u64,
    /// How many requests wait.
    pub waiters: u64,
    /// The holds, at most 100.
    pub holds: Vec<HoldInfo>,
    /// The queue, at most its first 100.
    pub queue: Vec<WaiterInfo>,
}

/// One owner's hold.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HoldInfo {
    /// The owner's name.
    pub owner: Vec<u8>,
    /// How often it holds the lock to write.
    pub write: u64,
    /// How often it holds the lock to read, or how many permits it has.
    pub read: u64,
    /// Its fencing token.
    pub token: Token,
    /// What is left of its lease.
    pub lease: Duration,
    /// For how long it has held the lock.
    pub held: Duration,
    /// The id of the connection that was granted it; 0 if that is not known.
    pub client: u64,
    /// Whether its hold was revoked: it ends with its lease.
    pub is_revoked: bool,
}

/// One request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// The owner's name.
    pub owner: Vec<u8>,
    /// How it wants to hold the lock.
    pub mode: Mode,
    /// The lease that it asks for.
    pub lease: Duration,
    /// How long it has waited.
    pub waited: Duration,
    /// How long it may still wait; `None` without limit.
    pub left: Option<Duration>,
}

/// A lock with waiters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopEntry {
    /// Its key.
    pub key: Vec<u8>,
    /// The number of its database.
    pub db: u64,
    /// How it is held; `None` where nobody is known to hold it.
    pub mode: Option<Mode>,
    /// How many owners hold it.
    pub holders: u64,
    /// How many requests wait.
    pub waiters: u64,
    /// How long the first of them has waited.
    pub oldest: Duration,
}

impl LockInfo {
    /// Reads the reply to `LOCK.INFO`.
    pub(crate) fn read(value: Value) -> Result<Option<LockInfo>, Error> {
        if value == Value::Nil {
            return Ok(None);
        }
        let mut fields = Fields::read(value)?;
        Ok(Some(LockInfo {
            mode: fields.mode()?,
            holders: fields.get("holders")?,
            waiters: fields.get("waiters")?,
            holds: each(fields.get("holds")?, HoldInfo::read)?,
            queue: each(fields.get("queue")?, WaiterInfo::read)?,
        }))
    }
}

impl HoldInfo {
    fn read(mut fields: Fields) -> Result<HoldInfo, Error> {
        Ok(HoldInfo {
            owner: fields.get("owner")?,
            write: fields.get("write")?,
            read: fields.get("read")?,
            token: Token::new(fields.get("token")?),
            lease: fields.time("lease")?,
            held: fields.time("held")?,
            client: fields.get("client")?,
            is_revoked: fields.get::<u64>("revoked")? > 0,
        })
    }
}

impl WaiterInfo {
    fn read(mut fields: Fields) -> Result<WaiterInfo, Error> {
        let left: i64 = fields.get("left")?;
        Ok(WaiterInfo {
            owner: fields.get("owner")?,
            mode: fields.mode()?.unwrap_or(Mode::Write),
            lease: fields.time("lease")?,
            waited: fields.time("waited")?,
            left: u64::try_from(left).ok().map(Duration::from_millis),
        })
    }
}

impl TopEntry {
    /// Of what several servers replied to `LOCK.TOP` the entries with the longest queues.
    pub(crate) fn first(replies: Vec<Value>, count: usize) -> Result<Vec<TopEntry>, Error> {
        let lists = replies.into_iter().map(|it| each(it, TopEntry::read));
        let mut entries = lists.collect::<Result<Vec<_>, _>>()?.concat();
        entries.sort_by_key(|entry| Reverse((entry.waiters, entry.oldest)));
        entries.truncate(count);
        Ok(entries)
    }

    fn read(mut fields: Fields) -> Result<TopEntry, Error> {
        Ok(TopEntry {
            key: fields.get("key")?,
            db: fields.get("db")?,
            mode: fields.mode()?,
            holders: fields.get("holders")?,
            waiters: fields.get("waiters")?,
            oldest: fields.time("oldest")?,
        })
    }
}

/// A map of a reply, whatever the protocol.
struct Fields(HashMap<String, Value>);

impl Fields {
    fn read(value: Value) -> Result<Fields, Error> {
        let fields = HashMap::from_redis_value(value).map(Fields);
        fields.map_err(|error| Error::unexpected(&error))
    }

    fn get<T: FromRedisValue>(&mut self, name: &str) -> Result<T, Error> {
        let value = self.0.remove(name).unwrap_or(Value::Nil);
        T::from_redis_value(value).map_err(|error| Error::unexpected(&format!("{name}: {error}")))
    }

    fn time(&mut self, name: &str) -> Result<Duration, Error> {
        self.get(name).map(Duration::from_millis)
    }

    fn mode(&mut self) -> Result<Option<Mode>, Error> {
        Ok(match self.get::<String>("mode")?.as_str() {
            "write" => Some(Mode::Write),
            "read" => Some(Mode::Read),
            _ => None,
        })
    }
}

/// Reads each map of a list.
fn each<T>(list: Value, read: fn(Fields) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    let Value::Array(items) = list else {
        return Err(Error::unexpected(&list));
    };
    let items = items.into_iter();
    items.map(|item| read(Fields::read(item)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn map(fields: Vec<(&str, Value)>) -> Value {
        Value::Map(
            fields
                .into_iter()
                .map(|(name, value)| (text(name), value))
                .collect(),
        )
    }

    fn top(key: &str, waiters: i64, oldest: i64) -> Value {
        map(vec![
            ("key", text(key)),
            ("db", Value::Int(0)),
            ("mode", text("write")),
            ("holders", Value::Int(1)),
            ("waiters", Value::Int(waiters)),
            ("oldest", Value::Int(oldest)),
        ])
    }

    #[test]
    fn of_several_servers_the_locks_with_most_waiters_come_first() {
        let one = Value::Array(vec![top("b", 5, 10), top("d", 1, 900)]);
        let other = Value::Array(vec![top("a", 9, 10), top("c", 5, 7)]);
        let keys = |count| {
            let entries = TopEntry::first(vec![one.clone(), other.clone()], count).unwrap();
            entries.into_iter().map(|it| it.key).collect::<Vec<_>>()
        };
        assert_eq!(keys(9), [b"a", b"b", b"c", b"d"]);
        assert_eq!(keys(2), [b"a", b"b"]);
    }

    #[test]
    fn a_lock_that_nobody_has_is_none_and_a_missing_field_is_named() {
        assert_eq!(LockInfo::read(Value::Nil).unwrap(), None);
        let error = LockInfo::read(map(vec![("mode", text("read"))])).unwrap_err();
        assert!(error.to_string().contains("holders"), "{error}");
    }
}
