//! Servers, the faults that may happen to them, and what they still promise.

mod alone;
mod clustered;
mod diary;
mod network;
mod operated;
mod trouble;
mod watched;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use mortise_harness::{Dice, Link, Server};

use crate::check::Promises;
use crate::client::{Confirming, Place};

pub(crate) use alone::{Alone, Settings as OfAlone};
pub(crate) use clustered::{Clustered, Promotion};
pub(crate) use diary::Diary;
pub(crate) use operated::{Failover, Operated, Settings as OfOperated};
pub(crate) use trouble::trouble;
pub(crate) use watched::{Protection, Watched};

/// The lease of every lock, in milliseconds: the longest that servers allow. A set-up may have another one.
const LEASE: u64 = 1_000;

/// The lease where another server grants only after an election, or after replicas have attached to it again: longer than that takes.
/// A shorter lease would be over by then, with or without a grace.
const LONG_LEASE: u64 = 4_000;

/// How one client connects to the servers: over its own links, which can be cut and slowed down.
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) links: Vec<Arc<Link>>,
}

/// A set-up of servers.
pub(crate) trait Setup: Send {
    fn promises(&self) -> Promises;

    /// The lease of every lock, in milliseconds.
    fn lease(&self) -> u64 {
        LEASE
    }

    /// How clients confirm their holds, if they do.
    fn confirming(&self) -> Option<Confirming> {
        None
    }

    /// A connection for one more client.
    fn entry(&mut self) -> Entry;

    /// Causes one of the faults of this set-up that its promises survive, and returns when it is over.
    fn disturb(&mut self, dice: &mut Dice, diary: &Diary);

    /// Repairs everything.
    fn heal(&mut self, diary: &Diary);

    /// All servers that hold data.
    fn servers(&self) -> Vec<&Server>;

    /// The servers whose data counts as written.
    fn primaries(&self) -> Vec<&Server>;

    /// Where LOCK.INFO shows the locks.
    fn view(&self) -> View;
}

/// Where LOCK.INFO shows the locks.
#[derive(Debug, Clone)]
pub(crate) enum View {
    /// Nowhere: each of several servers has its own.
    Nowhere,
    Primary(Primary),
    /// At the node that has the key.
    Cluster(Vec<u16>),
}

/// The port of the server that is the primary.
#[derive(Debug, Clone)]
pub(crate) struct Primary(Arc<AtomicU16>);

impl Primary {
    pub(crate) fn at(port: u16) -> Primary {
        Primary(Arc::new(AtomicU16::new(port)))
    }

    pub(crate) fn is_now(&self, port: u16) {
        self.0.store(port, Ordering::SeqCst);
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.load(Ordering::SeqCst)
    }
}
