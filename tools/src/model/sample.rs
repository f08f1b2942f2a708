//! One server's answer at one moment.

use std::time::Duration;

use crate::text;

/// Events from the source to the model.
#[derive(Debug, Clone)]
pub enum Report {
    /// These are the servers now.
    Nodes(Vec<String>),
    /// A server has answered.
    Sample {
        /// Which one.
        node: String,
        /// When, counted from the start of the program.
        at: Duration,
        /// What it said.
        sample: Box<Sample>,
    },
    /// A server has not answered.
    Silent {
        /// Which one.
        node: String,
        /// When this was noticed.
        at: Duration,
        /// What happened instead.
        why: String,
    },
    /// Which servers there are could not be found out.
    Lost {
        /// When this was noticed.
        at: Duration,
        /// What happened instead.
        why: String,
    },
    /// What came of breaking a hold.
    Broken {
        /// When.
        at: Duration,
        /// On which lock.
        lock: LockId,
        /// Whose.
        owner: Vec<u8>,
        /// What came of it.
        outcome: Broken,
    },
}

/// What came of breaking a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// It is gone.
    Ended,
    /// It ends in so many milliseconds at the latest.
    Revoked(u64),
    /// There was none, by that token.
    Nothing,
    /// The server has refused, and said why.
    Refused(String),
    /// The connection broke before that could be known.
    Unknown(String),
}

/// One lock of one server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockId {
    /// The server's address.
    pub node: String,
    /// The database.
    pub db: u32,
    /// The key.
    pub key: Vec<u8>,
}

/// A server's answer.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// `INFO lock`, and other facts of the server.
    pub facts: Facts,
    /// The locks with the most waiters, most first.
    pub wanted: Vec<Wanted>,
    /// Why there are none, where they were refused.
    pub refused: Option<String>,
    /// The open lock, if it is on this server.
    pub opened: Option<Opened>,
}

/// Who holds and waits: None where nobody does, or why the server does not say.
pub type LockAnswer = Result<Option<Detail>, String>;

/// The answer about one lock.
pub type Opened = (LockId, LockAnswer);

/// What part the server plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// It takes writes.
    #[default]
    Primary,
    /// It follows another.
    Replica,
}

/// How the server is run, as far as it matters for a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deployment {
    /// Its role.
    pub role: Role,
    /// It is a node of a cluster.
    pub cluster: bool,
    /// How many replicas are attached.
    pub replicas: u64,
}

/// The numbers of `INFO lock`.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// How it is run.
    pub deployment: Deployment,
    /// Keys that are held.
    pub locks: u64,
    /// Holds.
    pub holders: u64,
    /// Requests that wait.
    pub waiters: u64,
    /// Of these, those by mail.
    pub by_mail: u64,
    /// Clients that a lock blocks.
    pub blocked: u64,
    /// Boxes.
    pub boxes: u64,
    /// Letters not forgotten.
    pub letters: u64,
    /// Keys whose hand-off the server refuses.
    pub held_back: u64,
    /// The server may evict locks that are held.
    pub evictable: bool,
    /// Since the server's start.
    pub totals: Totals,
    /// How long nothing will be granted.
    pub grace_left_ms: u64,
    /// How long there may be holds that RENEW takes for none.
    pub suspect_left_ms: u64,
    /// Too few replicas have acknowledged recent data.
    pub replicas_late: bool,
    /// The token clock.
    pub last_token: u64,
    /// How long those waited who were granted.
    pub wait: Times,
    /// How long holds lasted.
    pub hold: Times,
    /// Two holders are kept apart over a failover.
    pub failover_safe: bool,
    /// Else what is missing for that.
    pub failover_missing: String,
    /// Settings, where the user may read them.
    pub limits: Limits,
}

/// Counters that only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Locks granted.
    pub grants: u64,
    /// Grants to who held already.
    pub reentries: u64,
    /// Grants out of a queue.
    pub handoffs: u64,
    /// Releases.
    pub releases: u64,
    /// Renewals.
    pub renewals: u64,
    /// Leases that ran out.
    pub expiries: u64,
    /// Waits that ran out.
    pub timeouts: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Requests answered null at once.
    pub denied: u64,
}

/// Percentiles in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// The median.
    pub p50: u64,
    /// 95 of 100 were no longer.
    pub p95: u64,
    /// 99 of 100 were no longer.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

/// `lock.max-waiters` and `lock.max-queued`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// How many requests may be blocked.
    pub waiters: Option<u64>,
    /// How many requests, letters and boxes there may be.
    pub queued: Option<u64>,
}

/// How a lock is held, or requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// By one.
    Write,
    /// By any number of readers.
    Read,
    /// By nobody that is known.
    #[default]
    None,
}

impl Mode {
    /// The server's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Write => "write",
            Mode::Read => "read",
            Mode::None => "none",
        }
    }
}

/// A lock that is waited for.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The database.
    pub db: u32,
    /// The key.
    pub key: Vec<u8>,
    /// How it is held.
    pub mode: Mode,
    /// How many hold it.
    pub holders: u64,
    /// How many wait.
    pub waiters: u64,
    /// For how long the first has waited, in milliseconds.
    pub oldest_ms: u64,
    /// The first few of its holders and waiters, if they could be read.
    pub detail: Option<Detail>,
}

impl Wanted {
    /// It has `filter` in its name, in that of a holder, or in its server's, whatever their case.
    pub fn has(&self, filter: &str, node: &str) -> bool {
        let filter = filter.to_lowercase();
        let holds = self.detail.iter().flat_map(|detail| &detail.holds);
        let owners = holds.map(|hold| text::escaped(&hold.owner));
        let mut texts = [text::escaped(&self.key), node.to_owned()]
            .into_iter()
            .chain(owners);
        texts.any(|text| text.to_lowercase().contains(&filter))
    }
}

/// Who holds a lock and who waits.
#[derive(Debug, Clone, Default)]
pub struct Detail {
    /// How it is held.
    pub mode: Mode,
    /// How many hold it.
    pub holders: u64,
    /// How many wait.
    pub waiters: u64,
    /// The first of the holders.
    pub holds: Vec<Hold>,
    /// The first of the queue.
    pub queue: Vec<Waiter>,
}

/// One owner's stake.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hold {
    /// Who.
    pub owner: Vec<u8>,
    /// How many times to write.
    pub write: u64,
    /// How many times to read.
    pub read: u64,
    /// The fencing token.
    pub token: u64,
    /// What is left of the lease.
    pub lease_ms: u64,
    /// Since when.
    pub held_ms: u64,
    /// The connection that was granted.
    pub client: u64,
}

/// One place in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waiter {
    /// Who.
    pub owner: Vec<u8>,
    /// What for.
    pub mode: Mode,
    /// The lease it asks for.
    pub lease_ms: u64,
    /// Since when.
    pub waited_ms: u64,
    /// For how much longer; None is without limit.
    pub left_ms: Option<u64>,
    /// Its blocked connection; none for who waits by mail.
    pub client: u64,
}

impl Waiter {
    /// It waits without a blocked connection.
    pub fn is_by_mail(&self) -> bool {
        self.client == 0
    }
}

impl Detail {
    /// `mail`, `blocked`, or `both`, as far as the queue is known; nothing where nobody waits.
    pub fn wait_by(&self) -> &'static str {
        let mail = self
            .queue
            .iter()
            .filter(|waiter| waiter.is_by_mail())
            .count();
        match (mail, self.queue.len() - mail) {
            (0, 0) => "",
            (_, 0) => "mail",
            (0, _) => "blocked",
            _ => "both",
        }
    }
}
