//! Reads locks: `LOCK.INFO` and `LOCK.TOP`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use crate::value::{Error, Mode, Token};
use crate::wire::{Reply, unexpected};

/// What a reply can be read as.
pub(crate) trait FromReply: Sized {
    fn read(reply: Reply) -> Result<Self, Error>;
}

/// Types whose fields are those of a map, by the same names.
macro_rules! maps {
    ($($(#[$about:meta])* pub struct $name:ident {
        $($(#[$what:meta])* pub $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$what])* pub $field: $type,)*
        }

        impl FromReply for $name {
            fn read(reply: Reply) -> Result<$name, Error> {
                let mut fields = Fields::read(reply)?;
                Ok($name { $($field: fields.get(stringify!($field))?,)* })
            }
        }
    )*};
}

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
    /// Its answer, or why there is none.
    pub answer: Result<T, Error>,
}

maps! {
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
}

impl TopEntry {
    /// The first `count` of what one server, or several, have listed.
    pub(crate) fn first(replies: Vec<Reply>, count: usize) -> Result<Vec<TopEntry>, Error> {
        let lists = replies.into_iter().map(FromReply::read);
        let lists: Vec<Vec<TopEntry>> = lists.collect::<Result<_, _>>()?;
        let mut entries = lists.concat();
        entries.sort_by_key(|entry: &TopEntry| Reverse((entry.waiters, entry.oldest)));
        entries.truncate(count);
        Ok(entries)
    }
}

/// The fields of a map, which RESP2 sends as a flat array. Fields that this version does not know are ignored.
pub(crate) struct Fields(HashMap<Vec<u8>, Reply>);

impl Fields {
    pub(crate) fn get<T: FromReply>(&mut self, name: &str) -> Result<T, Error> {
        let missing = || unexpected(&Reply::Error(format!("no field {name:?}")));
        T::read(self.0.remove(name.as_bytes()).ok_or_else(missing)?)
    }
}

/// How each kind of value is read: what it looks like, and what it becomes.
macro_rules! reads {
    ($($type:ty: $($pattern:pat => $value:expr),+;)*) => {$(
        impl FromReply for $type {
            fn read(reply: Reply) -> Result<$type, Error> {
                match reply {
                    $($pattern => Ok($value),)+
                    other => Err(unexpected(&other)),
                }
            }
        }
    )*};
}

reads! {
    Vec<u8>: Reply::Text(bytes) => bytes;
    u64: Reply::Int(number) => u64::try_from(number).unwrap_or(0);
    Duration: Reply::Int(ms) => Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    // Below zero: there is no limit.
    Option<Duration>: Reply::Int(ms) => u64::try_from(ms).ok().map(Duration::from_millis);
    Token: Reply::Int(number @ 1..) => Token::new(number.unsigned_abs());
    Option<Mode>: Reply::Text(mode) => match mode.as_slice() {
        b"write" => Some(Mode::Write),
        b"read" => Some(Mode::Read),
        _ => None,
    };
    Mode: Reply::Text(mode) => if mode == b"read" { Mode::Read } else { Mode::Write };
    Fields: Reply::Array(flat) => {
        let (mut fields, mut flat) = (HashMap::new(), flat.into_iter());
        while let (Some(name), Some(value)) = (flat.next(), flat.next()) {
            fields.insert(FromReply::read(name)?, value);
        }
        Fields(fields)
    };
}

impl<T: FromReply> FromReply for Vec<T> {
    fn read(reply: Reply) -> Result<Vec<T>, Error> {
        match reply {
            Reply::Array(items) => items.into_iter().map(T::read).collect(),
            other => Err(unexpected(&other)),
        }
    }
}

impl FromReply for Option<LockInfo> {
    fn read(reply: Reply) -> Result<Option<LockInfo>, Error> {
        match reply {
            Reply::Nil => Ok(None),
            map => LockInfo::read(map).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.as_bytes().to_vec())
    }

    fn map(fields: Vec<(&str, Reply)>) -> Reply {
        let flat = fields.into_iter();
        Reply::Array(flat.flat_map(|(name, value)| [text(name), value]).collect())
    }

    fn top(key: &str, waiters: i64, oldest: i64) -> Reply {
        map(vec![
            ("key", text(key)),
            ("db", Reply::Int(0)),
            ("mode", text("write")),
            ("holders", Reply::Int(1)),
            ("waiters", Reply::Int(waiters)),
            ("oldest", Reply::Int(oldest)),
        ])
    }

    #[test]
    fn of_several_servers_the_locks_with_most_waiters_come_first() {
        let one = Reply::Array(vec![top("b", 5, 10), top("d", 1, 900)]);
        let other = Reply::Array(vec![top("a", 9, 10), top("c", 5, 7)]);
        let keys = |count| {
            let entries = TopEntry::first(vec![one.clone(), other.clone()], count).unwrap();
            entries.into_iter().map(|it| it.key).collect::<Vec<_>>()
        };
        assert_eq!(keys(9), [b"a", b"b", b"c", b"d"]);
        assert_eq!(keys(2), [b"a", b"b"]);
    }

    #[test]
    fn a_lock_that_nobody_has_is_none() {
        assert_eq!(Option::<LockInfo>::read(Reply::Nil).unwrap(), None);
        let lock = map(vec![
            ("mode", text("read")),
            ("holders", Reply::Int(0)),
            ("waiters", Reply::Int(0)),
            ("holds", Reply::Array(Vec::new())),
            ("queue", Reply::Array(Vec::new())),
        ]);
        let read = Option::<LockInfo>::read(lock).unwrap();
        assert_eq!(read.unwrap().mode, Some(Mode::Read));
    }
}
