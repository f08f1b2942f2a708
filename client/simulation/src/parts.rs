//! What the world is made of: time, clocks, permits, what may happen, and connections.

use std::collections::VecDeque;
use std::task::Waker;

/// In microseconds since the world began.
pub(crate) type Micros = u64;
pub(crate) type ProcessId = usize;
pub(crate) type NodeId = usize;

pub(crate) const fn ms(millis: u64) -> Micros {
    millis * 1_000
}

/// A boot-time clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// What it showed when the world began.
    pub(crate) offset: Micros,
    /// How many microseconds a second it is too fast.
    pub(crate) ppm: i64,
}

impl Clock {
    pub(crate) fn at(self, moment: Micros) -> Micros {
        let drift = moment as i64 * self.ppm / 1_000_000;
        (self.offset + moment).saturating_add_signed(drift)
    }

    /// The first moment at which it shows that.
    pub(crate) fn moment_of(self, shown: Micros) -> Micros {
        let since = shown.saturating_sub(self.offset) as i64;
        (since * 1_000_000 / (1_000_000 + self.ppm)) as u64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Runs,
    /// Its tasks get no time; its clock goes on.
    Stopped,
    Dead,
}

pub(crate) type ConnId = usize;

pub(crate) type Words = Vec<Vec<u8>>;

#[derive(Debug)]
pub(crate) enum Event {
    /// A command reaches its server.
    Arrive(ConnId, Words),
    /// A command whose connection is long gone reaches a server.
    Late(NodeId, Words),
    /// A reply reaches its client.
    Deliver(ConnId, Vec<u8>),
    /// The client sees that its connection is gone.
    Cut(ConnId),
    /// The server does.
    Closed(ConnId),
    /// Something is due at a server.
    Due(NodeId),
    Stall(NodeId, Micros),
    ReadOn(NodeId),
    Down(NodeId),
    Up {
        node: NodeId,
        data: Data,
        grace: u64,
    },
    /// The replica of a server has all that it has by now; it gets what follows too late for the next failover.
    Replicate(NodeId),
    Stop(ProcessId),
    GoOn(ProcessId),
    Kill(ProcessId),
    /// Nothing gets through between the two, and nobody is told.
    Part(ProcessId, NodeId),
    Join(ProcessId, NodeId),
}

/// What a server has that comes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// Its own, as one that writes every change to its disk.
    Own,
    /// None.
    Nothing,
    /// What its replica had: that one takes its place.
    OfReplica,
}

/// What may happen to a message, in so many of a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fates {
    pub(crate) request_lost: u64,
    pub(crate) reply_lost: u64,
    /// It arrives when its connection is long gone.
    pub(crate) late: u64,
    /// It arrives, and once more when its connection is gone.
    pub(crate) doubled: u64,
    /// A reply takes its time.
    pub(crate) slow: u64,
    /// From then on nothing happens any more.
    pub(crate) until: Micros,
    /// The most that a message takes, in milliseconds, if nothing happens to it.
    pub(crate) latency: u64,
    /// The latest that a late one arrives, in milliseconds.
    pub(crate) latest: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Conn {
    pub(crate) process: ProcessId,
    pub(crate) node: NodeId,
    /// Written, and no whole command yet.
    pub(crate) out: Vec<u8>,
    /// Arrived, and not read yet.
    pub(crate) inbox: VecDeque<u8>,
    pub(crate) reader: Option<Waker>,
    /// The client sees its end.
    pub(crate) is_cut: bool,
    /// Nothing gets through any more, in either direction.
    pub(crate) is_severed: bool,
    /// The server has seen its end.
    pub(crate) is_closed: bool,
    /// A LOCK.MAIL waits on it; what comes behind has to wait.
    pub(crate) is_busy: bool,
    pub(crate) behind: VecDeque<Words>,
    /// When the last message of each way arrives.
    pub(crate) last_arrival: Micros,
    pub(crate) last_delivery: Micros,
}

/// A share of a key that so many have at most, together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) count: u32,
    pub(crate) limit: u32,
}
