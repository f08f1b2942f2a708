//! What the connections send: locks, or for comparison the same number of `SET` and `DEL`.

use mortise_harness::redis::Cmd;
use mortise_harness::{Server, command, try_cmd};

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Locks,
    Strings,
}

/// Where a server is, and the hash tag of keys that it has.
#[derive(Debug, Clone)]
pub(crate) struct Tag {
    pub(crate) port: u16,
    pub(crate) text: String,
}

/// What one connection repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Write,
    Read,
    Permit,
    /// Acquires the lock, and never releases it.
    Expire,
}

const LEASE: u64 = 10_000;
/// Shorter than a round.
const SHORT: u64 = 20;

impl Use {
    pub(crate) fn of(connection: usize) -> Use {
        match connection % 20 {
            17 => Use::Read,
            18 => Use::Permit,
            19 => Use::Expire,
            _ => Use::Write,
        }
    }
}

impl Scheme {
    /// The commands of one round.
    pub(crate) fn commands(self, what: Use, tag: &str, connection: usize, round: u64) -> Vec<Cmd> {
        let owner = format!("{connection}:{round}");
        let own = format!("{{{tag}}}:{connection}:{}", round % 64);
        match (self, what) {
            (Scheme::Strings, Use::Expire) => vec![command!("SET", own, owner, "NX", "PX", SHORT)],
            (Scheme::Strings, _) => vec![
                command!("SET", &own, owner, "NX", "PX", LEASE),
                command!("DEL", &own),
            ],
            (Scheme::Locks, Use::Write) => vec![
                command!("LOCK.ACQUIRE", &own, &owner, LEASE),
                command!("LOCK.RELEASE", &own, &owner),
            ],
            (Scheme::Locks, Use::Read) => {
                let shared = format!("{{{tag}}}:shared");
                vec![
                    command!("LOCK.RLOCK", &shared, &owner, LEASE),
                    command!("LOCK.RELEASE", &shared, &owner),
                ]
            }
            (Scheme::Locks, Use::Permit) => {
                let pool = format!("{{{tag}}}:pool");
                vec![
                    command!("LOCK.RLOCK", &pool, &owner, LEASE, "LIMIT", 1_000),
                    command!("LOCK.RELEASE", &pool, &owner),
                ]
            }
            (Scheme::Locks, Use::Expire) => vec![command!("LOCK.ACQUIRE", own, owner, SHORT)],
        }
    }
}

/// A hash tag whose keys are on this node of a cluster.
pub(crate) fn tag_of(node: &Server, number: usize) -> String {
    let mut conn = node.connect();
    let mut tags = (0..).map(|n| format!("haul-{number}-{n}"));
    let is_here = |tag: &String| try_cmd!(conn, "GET", format!("{{{tag}}}:x")).is_ok();
    tags.find(is_here).expect("a node that has slots")
}
