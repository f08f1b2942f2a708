//! Looking at locks: `LOCK.INFO` and `LOCK.TOP`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use crate::proto::reply::{Reply, unexpected};
use crate::value::error::Error;
use crate::value::mode::Mode;
use crate::value::token::Token;

/// What one server has answered.
///
/// ```no_run
/// # async fn example(locks: &dyn mortise_client::Locks) {
/// for there in locks.info_on_each(b"ledger").await {
///     match there.answer {
///         Ok(Some(info)) => println!("{}: {} hold it", there.server, info.holders),
///         Ok(None) => println!("{}: free", there.server),
///         Err(error) => println!("{}: {error}", there.server),
///     }
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerAnswer<T> {
    /// The server's address.
    pub server: String,
    /// What it said, or why there is no answer.
    pub answer: Result<T, Error>,
}

/// A lock as the server sees it.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// use mortise_client::Mode;
///
/// let guard = client.lock("report").read().await?;
/// let info = client.info("report").await?.expect("somebody holds it");
/// assert_eq!((info.mode, info.holders, info.waiters), (Some(Mode::Read), 1, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// How it is held; `None` where requests wait though nobody is known to hold, as after a failover.
    pub mode: Option<Mode>,
    /// How many owners hold it.
    pub holders: u64,
    /// How many requests queue for it.
    pub waiters: u64,
    /// The holds, at most 100.
    pub holds: Vec<HoldInfo>,
    /// The queue from its head, at most 100.
    pub queue: Vec<WaiterInfo>,
}

/// One owner's hold as the server sees it.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), mortise_client::Error> {
/// # let server = mortise_harness::Server::start();
/// # let client = mortise_client::Client::connect(server.url()).await?;
/// let guard = client.lock("report").write().await?;
/// let info = client.info("report").await?.expect("somebody holds it");
/// assert_eq!(info.holds[0].owner, guard.owner());
/// assert_eq!((info.holds[0].write, info.holds[0].token), (1, guard.token()));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HoldInfo {
    /// The owner's name.
    pub owner: Vec<u8>,
    /// How often it holds the lock for writing.
    pub write: u64,
    /// How often it holds the lock for reading.
    pub read: u64,
    /// The hold's token.
    pub token: Token,
    /// What is left of the lease.
    pub lease: Duration,
    /// How long ago the owner was first granted it.
    pub held: Duration,
    /// The id of the connection it was granted to, 0 if unknown.
    pub client: u64,
}

/// One request that waits, as the server sees it.
///
/// ```no_run
/// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
/// if let Some(info) = client.info("report").await? {
///     for waiter in &info.queue {
///         println!("{} waits to {} since {:?}", String::from_utf8_lossy(&waiter.owner), waiter.mode, waiter.waited);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// The owner's name.
    pub owner: Vec<u8>,
    /// What it asks for.
    pub mode: Mode,
    /// The lease it asks for.
    pub lease: Duration,
    /// How long it has waited.
    pub waited: Duration,
    /// How much longer it will wait; `None` without limit.
    pub left: Option<Duration>,
    /// The id of the connection it waits on.
    pub client: u64,
}

/// A lock with waiters, from [`Client::top`](crate::Client::top) or [`Quorum::top`](crate::Quorum::top).
///
/// ```no_run
/// # async fn example(client: mortise_client::Client) -> Result<(), mortise_client::Error> {
/// for lock in client.top(10).await? {
///     println!("{}: {} wait, the first for {:?}", String::from_utf8_lossy(&lock.key), lock.waiters, lock.oldest);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopEntry {
    /// The key.
    pub key: Vec<u8>,
    /// The number of its database.
    pub db: u64,
    /// How it is held; `None` where nobody is known to hold it.
    pub mode: Option<Mode>,
    /// How many owners hold it.
    pub holders: u64,
    /// How many requests queue for it.
    pub waiters: u64,
    /// How long the first of them has waited.
    pub oldest: Duration,
}

#[cfg(feature = "blocking")]
impl<T> ServerAnswer<T> {
    /// Nobody could be asked.
    pub(crate) fn failed(error: Error) -> ServerAnswer<T> {
        ServerAnswer {
            server: String::new(),
            answer: Err(error),
        }
    }
}

impl LockInfo {
    pub(crate) fn parse(value: Reply) -> Result<Option<LockInfo>, Error> {
        if value == Reply::Nil {
            return Ok(None);
        }
        let mut map = Fields::of(value)?;
        Ok(Some(LockInfo {
            mode: map.mode("mode")?,
            holders: map.number("holders")?,
            waiters: map.number("waiters")?,
            holds: map.list("holds", HoldInfo::parse)?,
            queue: map.list("queue", WaiterInfo::parse)?,
        }))
    }
}

impl HoldInfo {
    fn parse(value: Reply) -> Result<HoldInfo, Error> {
        let mut map = Fields::of(value)?;
        Ok(HoldInfo {
            owner: map.bytes("owner")?,
            write: map.number("write")?,
            read: map.number("read")?,
            token: Token::new(map.number("token")?),
            lease: map.millis("lease")?,
            held: map.millis("held")?,
            client: map.number("client")?,
        })
    }
}

impl WaiterInfo {
    fn parse(value: Reply) -> Result<WaiterInfo, Error> {
        let mut map = Fields::of(value)?;
        let left = map.take("left")?;
        Ok(WaiterInfo {
            owner: map.bytes("owner")?,
            mode: map.mode("mode")?.unwrap_or(Mode::Write),
            lease: map.millis("lease")?,
            waited: map.millis("waited")?,
            left: match left {
                Reply::Int(ms) => u64::try_from(ms).ok().map(Duration::from_millis),
                other => return Err(unexpected(&other)),
            },
            client: map.number("client")?,
        })
    }
}

impl TopEntry {
    /// The first `count` of what one server, or several, have listed.
    pub(crate) fn parse(replies: Vec<Reply>, count: usize) -> Result<Vec<TopEntry>, Error> {
        let lists = replies.into_iter().map(TopEntry::parse_one);
        let lists: Vec<Vec<TopEntry>> = lists.collect::<Result<_, _>>()?;
        let mut entries = lists.concat();
        entries.sort_by_key(|entry: &TopEntry| Reverse((entry.waiters, entry.oldest)));
        entries.truncate(count);
        Ok(entries)
    }

    fn parse_one(reply: Reply) -> Result<Vec<TopEntry>, Error> {
        list(reply, |value| {
            let mut map = Fields::of(value)?;
            Ok(TopEntry {
                key: map.bytes("key")?,
                db: map.number("db")?,
                mode: map.mode("mode")?,
                holders: map.number("holders")?,
                waiters: map.number("waiters")?,
                oldest: map.millis("oldest")?,
            })
        })
    }
}

/// The fields of a map, which RESP2 sends as a flat array. Fields that this version does not know are ignored.
pub(crate) struct Fields(HashMap<Vec<u8>, Reply>);

impl Fields {
    pub(crate) fn of(reply: Reply) -> Result<Fields, Error> {
        let Reply::Array(flat) = reply else {
            return Err(unexpected(&reply));
        };
        let mut flat = flat.into_iter();
        let mut fields = HashMap::new();
        while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
            fields.insert(bytes(name)?, value);
        }
        Ok(Fields(fields))
    }

    fn take(&mut self, name: &str) -> Result<Reply, Error> {
        let missing = || unexpected(&Reply::Error(format!("no field {name:?}")));
        self.0.remove(name.as_bytes()).ok_or_else(missing)
    }

    pub(crate) fn bytes(&mut self, name: &str) -> Result<Vec<u8>, Error> {
        bytes(self.take(name)?)
    }

    pub(crate) fn text(&mut self, name: &str) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(&self.bytes(name)?).into_owned())
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<u64, Error> {
        match self.take(name)? {
            Reply::Int(n) => Ok(u64::try_from(n).unwrap_or(0)),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) fn millis(&mut self, name: &str) -> Result<Duration, Error> {
        Ok(Duration::from_millis(self.number(name)?))
    }

    fn mode(&mut self, name: &str) -> Result<Option<Mode>, Error> {
        match self.bytes(name)?.as_slice() {
            b"write" => Ok(Some(Mode::Write)),
            b"read" => Ok(Some(Mode::Read)),
            _ => Ok(None),
        }
    }

    fn list<T>(
        &mut self,
        name: &str,
        parse: impl FnMut(Reply) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        list(self.take(name)?, parse)
    }
}

fn list<T>(reply: Reply, parse: impl FnMut(Reply) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    match reply {
        Reply::Array(items) => items.into_iter().map(parse).collect(),
        other => Err(unexpected(&other)),
    }
}

fn bytes(reply: Reply) -> Result<Vec<u8>, Error> {
    match reply {
        Reply::Text(bytes) => Ok(bytes),
        other => Err(unexpected(&other)),
    }
}
