//! What a key of the module's type holds, and where it comes from.

use std::cell::Cell;

use mortise_core::codec::Arrival;
use mortise_core::{Listed, Lock};

use super::context::Context;

/// The value of a key of type `mort-lock`. Plain data: it may be dropped on any thread.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) lock: Lock,
    /// Its place in the lease order of its database; `None` while it has none.
    pub(crate) listed: Cell<Option<Listed>>,
}

// There are a million of them.
const _: () = assert!(size_of::<Value>() <= 64);

impl Value {
    pub(crate) fn new(lock: Lock) -> Self {
        Self {
            lock,
            listed: Cell::new(None),
        }
    }
}

/// Where a value comes from, which decides what of it can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The server's own files, at start-up or DEBUG RELOAD.
    File,
    /// The server's own files, where it is a replica or may be one. They may hold what its primary sent, by the primary's clock.
    ReplicaFile,
    /// The primary, in a full sync.
    Sync,
    /// A RESTORE that reached this replica from its primary.
    Primary,
    /// A client: RESTORE, or MIGRATE from elsewhere.
    Client,
    /// A RESTORE on a replica to which clients may write, too: it may be a client's or the
    /// primary's.
    Either,
}

impl Source {
    pub(super) fn of(ctx: &Context<'_>) -> Self {
        match (ctx.is_loading(), ctx.is_replica()) {
            (true, true) if ctx.is_syncing() => Self::Sync,
            (true, _) if ctx.may_be_replica() => Self::ReplicaFile,
            (true, _) => Self::File,
            (false, false) => Self::Client,
            // The context of a load has no client that could be asked for.
            (false, true) if ctx.is_read_only_replica() => Self::Primary,
            (false, true) => Self::Either,
        }
    }

    /// Which clock shows how much of a lease is left.
    pub(crate) fn arrival(self) -> Arrival {
        match self {
            Self::File => Arrival::File,
            Self::ReplicaFile => Arrival::ReplicaFile,
            Self::Sync | Self::Primary | Self::Client | Self::Either => Arrival::Live,
        }
    }
}
