//! The reply of `LOCK.INFO` as plain data.

use std::collections::BTreeMap;

use redis::{ToRedisArgs, Value};

use crate::conn::Conn;
use crate::value::{array, as_map, bytes, int, is_nil, text};

/// A lock with holders or waiters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// `write`, `read` or `none`.
    pub mode: String,
    /// How many owners hold.
    pub holders: i64,
    /// How many requests wait.
    pub waiters: i64,
    /// All holds.
    pub holds: Vec<Hold>,
    /// All requests that wait, in their order.
    pub queue: Vec<Queued>,
}

/// One owner's hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Who holds.
    pub owner: Vec<u8>,
    /// How often it holds write.
    pub write: i64,
    /// How often it holds read.
    pub read: i64,
    /// The fencing token.
    pub token: i64,
    /// Milliseconds left.
    pub lease: i64,
    /// Milliseconds since the owner's first grant.
    pub held: i64,
    /// The connection that was granted, 0 if unknown.
    pub client: i64,
    /// It ends with its current lease.
    pub revoked: bool,
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queued {
    /// Who waits.
    pub owner: Vec<u8>,
    /// For what: `write` or `read`.
    pub mode: String,
    /// The lease it asks for, in milliseconds.
    pub lease: i64,
    /// Milliseconds it has waited.
    pub waited: i64,
    /// Milliseconds it will wait on, -1 for no limit.
    pub left: i64,
    /// The connection that waits.
    pub client: i64,
    /// By how much its mode's count grows, or what it is set to.
    pub count: i64,
    /// What all read counts may add up to, 0 for no limit.
    pub limit: i64,
    /// How many keys it requests at once.
    pub keys: i64,
}

/// The parts of a hold that do not change with time: its owner, write count, read count and token.
pub type Facts = (Vec<u8>, i64, i64, i64);

/// Asks `LOCK.INFO key`; `None` if nobody holds and nobody waits.
///
/// # Panics
/// If the server answers anything but null or what the contract says.
#[track_caller]
pub fn lock_info(conn: &mut Conn, key: impl ToRedisArgs) -> Option<LockInfo> {
    let reply = conn.run(&crate::command!("LOCK.INFO", key, "COUNT", i32::MAX));
    (!is_nil(&reply)).then(|| LockInfo::read(&reply))
}

/// Asks `LOCK.INFO key OWNER owner`; `None` if this owner holds nothing.
///
/// # Panics
/// If the server answers anything but null or what the contract says.
#[track_caller]
pub fn hold_of(conn: &mut Conn, key: impl ToRedisArgs, owner: impl ToRedisArgs) -> Option<Hold> {
    let reply = conn.run(&crate::command!("LOCK.INFO", key, "OWNER", owner));
    (!is_nil(&reply)).then(|| Hold::read(&reply))
}

impl LockInfo {
    /// Reads the map that `LOCK.INFO key` answers.
    ///
    /// # Panics
    /// If a field is missing, too much or of another type.
    #[track_caller]
    pub fn read(reply: &Value) -> LockInfo {
        let mut map = as_map(reply);
        let info = LockInfo {
            mode: text(&take(&mut map, "mode")),
            holders: int(&take(&mut map, "holders")),
            waiters: int(&take(&mut map, "waiters")),
            holds: read_each(&take(&mut map, "holds"), Hold::read),
            queue: read_each(&take(&mut map, "queue"), Queued::read),
        };
        assert!(map.is_empty(), "more than the contract's fields: {map:?}");
        info
    }

    /// The parts of each hold that do not change with time, in the order of `holds`.
    pub fn facts(&self) -> Vec<Facts> {
        self.holds.iter().map(Hold::facts).collect()
    }
}

impl Hold {
    /// Reads the map of one hold.
    ///
    /// # Panics
    /// If a field is missing, too much or of another type.
    #[track_caller]
    pub fn read(reply: &Value) -> Hold {
        let mut map = as_map(reply);
        let hold = Hold {
            owner: bytes(&take(&mut map, "owner")),
            write: int(&take(&mut map, "write")),
            read: int(&take(&mut map, "read")),
            token: int(&take(&mut map, "token")),
            lease: int(&take(&mut map, "lease")),
            held: int(&take(&mut map, "held")),
            client: int(&take(&mut map, "client")),
            revoked: flag(&take(&mut map, "revoked")),
        };
        assert!(map.is_empty(), "more than the contract's fields: {map:?}");
        hold
    }

    /// Its parts that do not change with time.
    pub fn facts(&self) -> Facts {
        (self.owner.clone(), self.write, self.read, self.token)
    }

    /// The write count and the read count.
    pub fn counts(&self) -> (i64, i64) {
        (self.write, self.read)
    }
}

impl Queued {
    /// Reads the map of one request that waits.
    ///
    /// # Panics
    /// If a field is missing, too much or of another type.
    #[track_caller]
    pub fn read(reply: &Value) -> Queued {
        let mut map = as_map(reply);
        let queued = Queued {
            owner: bytes(&take(&mut map, "owner")),
            mode: text(&take(&mut map, "mode")),
            lease: int(&take(&mut map, "lease")),
            waited: int(&take(&mut map, "waited")),
            left: int(&take(&mut map, "left")),
            client: int(&take(&mut map, "client")),
            count: int(&take(&mut map, "count")),
            limit: int(&take(&mut map, "limit")),
            keys: int(&take(&mut map, "keys")),
        };
        assert!(map.is_empty(), "more than the contract's fields: {map:?}");
        queued
    }
}

/// # Panics
/// If it is neither 1 nor 0.
#[track_caller]
fn flag(value: &Value) -> bool {
    match int(value) {
        0 => false,
        1 => true,
        other => panic!("neither 1 nor 0: {other}"),
    }
}

#[track_caller]
fn read_each<T>(items: &Value, read: impl Fn(&Value) -> T) -> Vec<T> {
    array(items).iter().map(read).collect()
}

#[track_caller]
fn take(map: &mut BTreeMap<String, Value>, field: &str) -> Value {
    match map.remove(field) {
        Some(value) => value,
        None => panic!("no field {field:?} in {map:?}"),
    }
}
