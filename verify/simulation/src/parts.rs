//! The parts of the world: time, clocks, permits, events, and connections.

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
    /// What the clock showed when the world began.
    pub(crate) offset: Micros,
    /// By how many microseconds a second it is too fast.
    pub(crate) ppm: i64,
}

impl Clock {
    pub(crate) fn at(self, moment: Micros) -> Micros {
        let drift = moment as i64 * self.ppm / 1_000_000;
        (self.offset + moment).saturating_add_signed(drift)
    }

    /// The first moment at which the clock shows `shown`.
    pub(crate) fn moment_of(self, shown: Micros) -> Micros {
        let since = shown.saturating_sub(self.offset) as i64;
        (since * 1_000_000 / (1_000_000 + self.ppm)) as u64
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Runs,
    /// Its tasks do not run; its clock does.
    Stopped,
    Dead,
}

pub(crate) type ConnId = usize;

pub(crate) type Words = Vec<Vec<u8>>;

#[derive(Debug)]
pub(crate) enum Event {
    /// A command reaches its server.
    Arrive(ConnId, Words),
    /// A command reaches a server long after its connection broke.
    Late(NodeId, Words),
    /// A reply reaches its client.
    Deliver(ConnId, Vec<u8>),
    /// The client notices that its connection is closed.
    Cut(ConnId),
    /// The server notices.
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
    /// The replica of a server has all its data of this moment. Later changes reach it only after the next failover.
    Replicate(NodeId),
    Stop(ProcessId),
    GoOn(ProcessId),
    Kill(ProcessId),
    /// The network between the two fails silently.
    Part(ProcessId, NodeId),
    Join(ProcessId, NodeId),
}

/// What data a server has after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// Its own, as with every change written to disk.
    Own,
    /// None.
    Nothing,
    /// What its replica had, which takes its place.
    OfReplica,
}

/// How many messages of a thousand meet each fate.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Fates {
    pub(crate) request_lost: u64,
    pub(crate) reply_lost: u64,
    /// The request arrives long after its connection broke.
    pub(crate) late: u64,
    /// The request arrives, and again after its connection broke.
    pub(crate) doubled: u64,
    /// The reply is slow.
    pub(crate) slow: u64,
    /// From then on the network and all processes work.
    pub(crate) until: Micros,
    /// The longest that an undisturbed message takes, in milliseconds.
    pub(crate) latency: u64,
    /// How late a late message is at most, in milliseconds.
    pub(crate) latest: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Conn {
    pub(crate) process: ProcessId,
    pub(crate) node: NodeId,
    /// Written by the client, but not yet a whole command.
    pub(crate) out: Vec<u8>,
    /// Arrived at the client, but not read yet.
    pub(crate) inbox: VecDeque<u8>,
    pub(crate) reader: Option<Waker>,
    /// The client has noticed its end.
    pub(crate) is_cut: bool,
    /// It passes nothing on any more, in either direction.
    pub(crate) is_severed: bool,
    /// The server has noticed its end.
    pub(crate) is_closed: bool,
    /// A LOCK.MAIL waits on it; later commands wait for that.
    pub(crate) is_busy: bool,
    pub(crate) behind: VecDeque<Words>,
    /// When the last message of each direction arrives.
    pub(crate) last_arrival: Micros,
    pub(crate) last_delivery: Micros,
}

/// How many permits a holder has, and how many there are in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) count: u32,
    pub(crate) limit: u32,
}
