//! The state of this layer, except for the locks that were freed on other threads (`strays`).
//!
//! Each field has a cell of its own, so that a borrow of one part blocks no other. A borrower
//! copies out what it needs, drops the borrow, and only then calls the server or another part,
//! which may come back here.

use std::cell::{Cell, LazyCell, RefCell};
use std::collections::BTreeSet;

use mortise_core::{
    Deque, HomeKey, Homes, Instant, KeyId, LeaseTables, Map, Remains, Strays, TokenClock,
};

use crate::ffi::{Context, MainThread};

static KEYS: MainThread<Keys> = MainThread::new(Keys {
    strays: RefCell::new(Strays::new()),
    arrivals: LazyCell::new(RefCell::default),
    loaded: Cell::new(false),
    replicates_synced_again: Cell::new(false),
    policy_unknown: Cell::new(false),
    watches_evictions: Cell::new(false),
    last_unlinked: RefCell::new(None),
    crowds: RefCell::new(Crowds {
        locks: Deque::new(),
        tables: Vec::new(),
    }),
    buffer: RefCell::new(Vec::new()),
    has_receivers: Cell::new(true),
    asked_for_replicas: Cell::new(Instant::from_millis(0)),
    token_clock_due: Cell::new(false),
    tokens: RefCell::new(TokenClock::new()),
    subscribed: Cell::new(false),
    tables: RefCell::new(LeaseTables::new()),
    crowded: LazyCell::new(RefCell::default),
    dirty: RefCell::new(Dirty {
        now: Deque::new(),
        held_back: BTreeSet::new(),
        gate_closed: false,
    }),
});

pub(crate) fn get(ctx: &Context<'_>) -> &'static Keys {
    KEYS.get(ctx)
}

/// What is known of the keys that hold locks.
pub(crate) struct Keys {
    /// Locks that lost their keys while they were held.
    pub(super) strays: RefCell<Strays>,
    /// Locks that came to their keys by COPY, RESTORE or a load.
    pub(super) arrivals: LazyCell<RefCell<Arrivals>>,
    /// A load has ended since marks were last settled.
    pub(super) loaded: Cell<bool>,
    /// The AOF needs the leases of what came in the last full sync.
    pub(super) replicates_synced_again: Cell<bool>,
    /// The setting that allows evictions has yet to be read.
    pub(super) policy_unknown: Cell<bool>,
    /// The module is subscribed to evictions.
    pub(super) watches_evictions: Cell<bool>,
    /// The database and the name of the last key that lost a lock that was held, until the event loop turns; kept while
    /// evictions are watched.
    pub(super) last_unlinked: RefCell<Option<KeyId>>,
    /// Holds that ended together, and tables of emptied databases: both are dropped a few at a time.
    pub(super) crowds: RefCell<Crowds>,
    /// Where effects are encoded.
    pub(super) buffer: RefCell<Vec<u8>>,
    /// A replica or the AOF may receive effects.
    pub(super) has_receivers: Cell<bool>,
    /// When the server was last asked whether it has replicas.
    pub(super) asked_for_replicas: Cell<Instant>,
    /// The token clock has to be replicated.
    pub(super) token_clock_due: Cell<bool>,
    /// Where fencing tokens come from.
    pub(super) tokens: RefCell<TokenClock>,
    /// The module is subscribed to all events that matter to locks.
    pub(super) subscribed: Cell<bool>,
    /// Which lock of each database loses its first hold next, and how many hold.
    pub(super) tables: RefCell<LeaseTables>,
    /// Locks with holds whose lease is over, too many to have been dropped at once. They change places with their database.
    pub(super) crowded: LazyCell<RefCell<Crowded>>,
    /// Keys that have to be settled.
    pub(super) dirty: RefCell<Dirty>,
}

/// The locks that came.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    pub(super) queue: Deque<HomeKey>,
    /// Those that are in the lease order, and are replicated when the server's pause is over.
    pub(super) held_back: Deque<HomeKey>,
    /// Those of them that came by RESTORE or in a full sync, so that their leases may have to be
    /// replicated.
    pub(super) restored: Map<HomeKey, ()>,
    /// Where the databases are now: a million names stay as they are when two databases change places.
    pub(super) homes: Homes,
}

/// Not dropped yet.
#[derive(Debug)]
pub(super) struct Crowds {
    pub(super) locks: Deque<Crowd>,
    pub(super) tables: Vec<LeaseTables>,
}

#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) key: KeyId,
    pub(super) holds: Box<Remains>,
    /// Their leases are over, which has not been replicated yet.
    pub(super) ended: bool,
}

#[derive(Debug, Default)]
pub(super) struct Crowded {
    pub(super) keys: BTreeSet<HomeKey>,
    pub(super) homes: Homes,
}

/// The keys that are marked.
#[derive(Debug)]
pub(super) struct Dirty {
    pub(super) now: Deque<KeyId>,
    /// Those whose writes the server refused just now, each once.
    pub(super) held_back: BTreeSet<KeyId>,
    /// The server refused a write that a timer tried.
    pub(super) gate_closed: bool,
}
