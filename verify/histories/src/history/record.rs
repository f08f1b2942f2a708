//! One line of a history. Times are nanoseconds since boot.

use serde::{Deserialize, Serialize};

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Read,
    Write,
}

/// How a request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// It does not wait.
    Now,
    /// A blocked connection waits for the reply.
    Blocked,
    /// It waits by mail.
    Mail,
    /// A library sends the request, and decides what it sends and how often.
    Library,
    /// The holder passes the lock on.
    Pass,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub(crate) enum Record {
    /// A client is about to request a lock.
    Ask(Ask),
    /// The server had queued the request by this time at the latest. A later record replaces this one.
    Queued { ask: String, at: u64 },
    /// The request is over.
    Answer(Answer),
    /// The client starts to believe.
    Granted(Granted),
    /// It believes for longer, until then.
    Kept(Mark),
    /// It stops believing. Recorded before it sends any command that ends the hold.
    Left(Mark),
    /// The server has acknowledged the release.
    Released(Mark),
    /// A guarded write.
    Write(Write),
    /// What the server showed of a lock.
    Seen(Seen),
    /// Locks were broken from outside.
    Break(Break),
    /// A disturbance.
    Fault {
        what: String,
        /// Of a client or its link; otherwise of servers.
        is_of_client: bool,
        from: u64,
        to: u64,
    },
    /// While it lasted, two servers could be primaries of the same lock, each with a queue of its own.
    Failover { from: u64, to: u64 },
    /// The client ended properly.
    Closed { at: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ask {
    pub(crate) ask: String,
    /// Empty if a library chooses it.
    pub(crate) owner: String,
    pub(crate) key: String,
    pub(crate) way: Way,
    pub(crate) at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) ask: String,
    pub(crate) outcome: Outcome,
    /// The text of an error.
    pub(crate) text: String,
    pub(crate) at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Granted,
    /// Others held it as long as the client waited.
    Denied,
    /// The server replied an error.
    Refused,
    /// Unknown: no reply came in time.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Granted {
    pub(crate) ask: String,
    pub(crate) owner: String,
    pub(crate) key: String,
    pub(crate) mode: Mode,
    /// How many permits; 1 for a lock.
    pub(crate) weight: u64,
    /// How many permits there are; 0 without a limit.
    pub(crate) limit: u64,
    pub(crate) token: u64,
    pub(crate) from: u64,
    pub(crate) until: u64,
    /// The keys that were granted together with this one, itself included.
    pub(crate) together: Vec<String>,
}

/// A moment of a hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) owner: String,
    pub(crate) key: String,
    pub(crate) token: u64,
    pub(crate) at: u64,
}

impl Granted {
    pub(crate) fn mark(&self, at: u64) -> Mark {
        Mark {
            owner: self.owner.clone(),
            key: self.key.clone(),
            token: self.token,
            at,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Write {
    pub(crate) owner: String,
    pub(crate) key: String,
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    pub(crate) sent: u64,
    pub(crate) at: u64,
    /// Whether the server ran it; unknown if no reply came.
    pub(crate) done: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) key: String,
    pub(crate) sent: u64,
    pub(crate) at: u64,
    pub(crate) holds: Vec<SeenHold>,
    pub(crate) queue: Vec<SeenRequest>,
}

impl Seen {
    /// Whether it shows the hold with this token.
    pub(crate) fn shows(&self, token: u64) -> bool {
        self.holds.iter().any(|hold| hold.token == token)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenHold {
    pub(crate) owner: String,
    pub(crate) mode: Mode,
    pub(crate) weight: u64,
    pub(crate) token: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenRequest {
    pub(crate) owner: String,
    /// Nanoseconds in the queue, no more than in truth.
    pub(crate) waited: u64,
}

/// All holds with a token up to this one were broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Break {
    pub(crate) token: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Whether they may come back, as after a second SWAPDB.
    pub(crate) may_return: bool,
}

/// Whether two may be inside together.
pub(crate) trait Mutual {
    fn mode(&self) -> Mode;

    fn keeps_out(&self, other: &impl Mutual) -> bool {
        self.mode() == Mode::Write || other.mode() == Mode::Write
    }
}

impl Mutual for SeenHold {
    fn mode(&self) -> Mode {
        self.mode
    }
}

impl Mutual for Granted {
    fn mode(&self) -> Mode {
        self.mode
    }
}
