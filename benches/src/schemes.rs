//! The compared ways to lock: commands on the wire, and the scripts behind them.
//!
//! The rival scripts are written for this comparison, as lean as their shape allows.

use mortise_harness::{Conn, Server, cmd, text};

use crate::wire::{Batch, Clients, batches};

/// The lease of a measured lock, in milliseconds: longer than its round.
pub(crate) const LEASE: u64 = 30_000;
/// The lease of a lock that stays held.
pub(crate) const LONG_LEASE: u64 = 3_600_000;

/// A way to acquire and release a lock.
#[derive(Debug, Clone)]
pub(crate) struct Scheme {
    pub(crate) name: &'static str,
    /// The commands that clients send, as INFO commandstats names them.
    pub(crate) commands: &'static [&'static str],
    /// The words of the commands; `$key`, `$owner` and `$lease` are replaced.
    acquire: String,
    release: String,
    /// The beginning of a successful reply.
    acquired: &'static str,
    released: &'static str,
}

/// Deletes a lock if its value is the owner's: the release of the Redis documentation.
const COMPARE_AND_DELETE: &str = "
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('del', KEYS[1])
else
    return 0
end";

/// A re-entrant lock as a hash of owner and count, as client libraries build it. Returns null, or how long to wait.
const HASH_ACQUIRE: &str = "
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return redis.call('pttl', KEYS[1])
end
redis.call('hincrby', KEYS[1], ARGV[1], 1)
redis.call('pexpire', KEYS[1], ARGV[2])
return false";

/// Counts down, and at zero deletes the lock and wakes the subscribers.
const HASH_RELEASE: &str = "
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return false
end
local left = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if left > 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
else
    redis.call('del', KEYS[1])
    redis.call('publish', 'released:' .. KEYS[1], 0)
end
return left";

/// A read lock as a sorted set of owners by deadline: the cheapest script with a lease for each reader.
const SET_READ: &str = "
local now = redis.call('time')
now = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('zremrangebyscore', KEYS[1], '-inf', now)
redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('pexpire', KEYS[1], ARGV[2])
return 1";

const SET_READ_RELEASE: &str = "
local gone = redis.call('zrem', KEYS[1], ARGV[1])
if gone == 1 and redis.call('exists', KEYS[1]) == 0 then
    redis.call('publish', 'released:' .. KEYS[1], 0)
end
return gone";

fn load_script(conn: &mut Conn, script: &str) -> String {
    text(&cmd!(conn, "SCRIPT", "LOAD", script.trim()))
}

impl Scheme {
    /// This module, exclusive locks.
    pub(crate) fn mortise() -> Scheme {
        Scheme {
            name: "LOCK.ACQUIRE + LOCK.RELEASE",
            commands: &["LOCK.ACQUIRE", "LOCK.RELEASE"],
            acquire: "LOCK.ACQUIRE $key $owner $lease".to_owned(),
            release: "LOCK.RELEASE $key $owner".to_owned(),
            acquired: ":1",
            released: ":0",
        }
    }

    /// This module, read locks.
    pub(crate) fn mortise_read() -> Scheme {
        Scheme {
            name: "LOCK.RLOCK + LOCK.RELEASE",
            commands: &["LOCK.RLOCK", "LOCK.RELEASE"],
            acquire: "LOCK.RLOCK $key $owner $lease".to_owned(),
            ..Scheme::mortise()
        }
    }

    /// This module, permits of a pool that is large enough for all.
    pub(crate) fn mortise_limit() -> Scheme {
        Scheme {
            name: "LOCK.RLOCK with LIMIT + LOCK.RELEASE",
            acquire: "LOCK.RLOCK $key $owner $lease LIMIT 1000000".to_owned(),
            ..Scheme::mortise_read()
        }
    }

    /// The lock that the Redis documentation describes.
    pub(crate) fn set_and_script(server: &Server) -> Scheme {
        let release = load_script(&mut server.connect(), COMPARE_AND_DELETE);
        Scheme {
            name: "SET NX PX + compare-and-delete script",
            commands: &["set", "evalsha"],
            acquire: "SET $key $owner NX PX $lease".to_owned(),
            release: format!("EVALSHA {release} 1 $key $owner"),
            acquired: "+OK",
            released: ":1",
        }
    }

    /// The same without a script, on servers that can.
    pub(crate) fn set_and_delifeq(server: &Server) -> Option<Scheme> {
        server.version().is_valkey_from(9, 0).then(|| Scheme {
            name: "SET NX PX + DELIFEQ",
            commands: &["set", "delifeq"],
            release: "DELIFEQ $key $owner".to_owned(),
            ..Scheme::set_and_script(server)
        })
    }

    /// A re-entrant lock of scripts.
    pub(crate) fn hash_scripts(server: &Server) -> Scheme {
        let mut conn = server.connect();
        let acquire = load_script(&mut conn, HASH_ACQUIRE);
        let release = load_script(&mut conn, HASH_RELEASE);
        Scheme {
            name: "re-entrant hash lock scripts",
            commands: &["evalsha"],
            acquire: format!("EVALSHA {acquire} 1 $key $owner $lease"),
            release: format!("EVALSHA {release} 1 $key $owner $lease"),
            acquired: "$-1",
            released: ":0",
        }
    }

    /// A read lock of scripts.
    pub(crate) fn set_read_scripts(server: &Server) -> Scheme {
        let mut conn = server.connect();
        let acquire = load_script(&mut conn, SET_READ);
        let release = load_script(&mut conn, SET_READ_RELEASE);
        Scheme {
            name: "sorted-set read lock scripts",
            commands: &["evalsha"],
            acquire: format!("EVALSHA {acquire} 1 $key $owner $lease"),
            release: format!("EVALSHA {release} 1 $key $owner"),
            acquired: ":1",
            released: ":1",
        }
    }

    /// Batches in which owner n acquires `key(n)`, for `count` numbers n from `first` on.
    pub(crate) fn acquires(
        &self,
        first: usize,
        count: usize,
        lease: u64,
        key: impl Fn(usize) -> String,
    ) -> Vec<Batch> {
        batches(first, count, self.acquired, |batch, n| {
            add(batch, &self.acquire, &key(n), n, lease);
        })
    }

    /// Batches in which owner n releases `key(n)`.
    pub(crate) fn releases(
        &self,
        first: usize,
        count: usize,
        key: impl Fn(usize) -> String,
    ) -> Vec<Batch> {
        batches(first, count, self.released, |batch, n| {
            add(batch, &self.release, &key(n), n, LEASE);
        })
    }

    /// Acquires `count` locks to stay.
    pub(crate) fn hold(&self, clients: &mut Clients, count: usize) {
        const STEP: usize = 50_000;
        for first in (0..count).step_by(STEP) {
            let count = STEP.min(count - first);
            clients.run(&self.acquires(first, count, LONG_LEASE, key));
        }
    }
}

/// The key of lock n.
pub(crate) fn key(n: usize) -> String {
    format!("order:{n:012}")
}

/// Owner n: 36 bytes, a UUID as clients make it.
pub(crate) fn owner(n: usize) -> String {
    // The finalizer of MurmurHash3 scatters the numbers.
    let mut bits = n as u64 + 1;
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        bits = (bits ^ (bits >> 33)).wrapping_mul(factor);
    }
    let (high, low) = (bits ^ (bits >> 33), bits.rotate_left(32));
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        high >> 32,
        high & 0xffff,
        (high >> 16) & 0xfff,
        low & 0xfff,
        low >> 16
    )
}

fn add(batch: &mut Batch, command: &str, key: &str, n: usize, lease: u64) {
    let (owner, lease) = (owner(n), lease.to_string());
    let words = command.split(' ').map(|word| match word {
        "$key" => key.as_bytes(),
        "$owner" => owner.as_bytes(),
        "$lease" => lease.as_bytes(),
        word => word.as_bytes(),
    });
    batch.add(&words.collect::<Vec<_>>());
}
