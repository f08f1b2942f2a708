//! What the module knows besides the keys: settings, clocks, orders, marks, totals.
//!
//! It belongs to the server's main thread; a background thread would see a state of its own and
//! could not touch this one. Every part has a cell of its own, and no borrow is held across a
//! call into the server, because such a call may come back through a callback.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::mem::ManuallyDrop;

use mortise_core::{Histogram, Instant, Left, Queues, Token, TokenClock};

use crate::ffi::Timer;
use crate::keys::leases::Table;
use crate::keys::remains::Crowds;
use crate::time::grace::Grace;
use crate::time::lateness::Lateness;
use crate::turn::arrivals::Arrivals;
use crate::turn::dirty::Dirty;
use crate::turn::dismissals::Dismissals;
use crate::turn::relook::{Scope, Walk, Walks};
use crate::turn::slots::Slots;
use crate::waiting::mail::Post;
use crate::waiting::undelivered::Undelivered;
use crate::waiting::waiters::Waiters;

/// Of a crowd that has gone room for so many is kept.
pub(crate) const ROOM_KEPT: usize = 256;

/// The name of a key.
pub(crate) type Name = Box<[u8]>;

/// Two databases that have changed places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swap(pub(crate) i32, pub(crate) i32);

impl Swap {
    /// Where what was in `db` is now.
    pub(crate) fn of(self, db: i32) -> i32 {
        match db {
            db if db == self.0 => self.1,
            db if db == self.1 => self.0,
            db => db,
        }
    }
}

pub(crate) struct State {
    pub(crate) max_lease: Cell<u64>,
    pub(crate) max_waiters: Cell<u64>,
    /// `lock.max-queued`.
    pub(crate) max_queued: Cell<u64>,
    /// `lock.mail-timeout`, in milliseconds.
    pub(crate) mail_timeout: Cell<u64>,
    /// `lock.grace`, in milliseconds.
    pub(crate) grace_ms: Cell<u64>,
    pub(crate) grace: Grace,
    pub(crate) lateness: Lateness,
    /// The latest end of a lease that was granted here or came here.
    pub(crate) last_deadline: Cell<Instant>,
    /// The latest end of a lease of a lock that lost its key while it was held. RENAME and MOVE look like that, too, so
    /// the lock may be held on where no table knows of it.
    pub(crate) last_stray_deadline: Cell<Instant>,
    /// This server is no replica.
    pub(crate) primary: Cell<bool>,
    /// Somebody may hear an effect, see `effect`.
    pub(crate) listening: Cell<bool>,
    pub(crate) tokens: RefCell<TokenClock>,
    /// By database.
    pub(crate) leases: RefCell<Vec<Table>>,
    pub(crate) queues: RefCell<Queues>,
    pub(crate) waiters: RefCell<Waiters>,
    pub(crate) post: Post,
    /// Who has left which key for good.
    pub(crate) left: RefCell<Left>,
    pub(crate) undelivered: RefCell<Undelivered>,
    /// Keys to be settled by a timer.
    pub(crate) dirty: RefCell<Dirty>,
    /// Locks that came to their keys other than by a command of ours.
    pub(crate) arrivals: RefCell<Arrivals>,
    /// Walks over the keys where somebody waits.
    pub(crate) walks: RefCell<Walks>,
    /// The walk of a time in which nothing is granted.
    pub(crate) patrol: RefCell<Walk>,
    /// Waiters who are all to be refused.
    pub(crate) dismissals: RefCell<Dismissals>,
    /// Locks with holds whose lease is over, too many to have been dropped at once.
    pub(crate) crowded: RefCell<BTreeSet<(i32, Name)>>,
    /// What such crowds, and tables, have left.
    pub(crate) crowds: RefCell<Crowds>,
    /// Which slots of the cluster are here.
    pub(crate) slots: RefCell<Slots>,
    /// The timer for marks and decided waiters is under way.
    pub(crate) end_of_turn_armed: Cell<bool>,
    /// The timer for what has no hurry is under way.
    pub(crate) background_armed: Cell<bool>,
    /// The timer for what is due next, and when that is.
    pub(crate) due_timer: Cell<Option<(Instant, Timer)>>,
    pub(crate) sweep_timer: Cell<Option<Timer>>,
    /// When the server was last asked whether it has replicas.
    pub(crate) asked_for_replicas: Cell<Instant>,
    /// The grace and the longest lease that a warning was last considered for.
    pub(crate) warned_of: Cell<(u64, u64)>,
    /// Replicas and the AOF are to be told how far the token clock has come.
    pub(crate) token_clock_due: Cell<bool>,
    /// A load has come to its end since the last look at marks.
    pub(crate) loaded: Cell<bool>,
    /// The AOF is to be told of what came in the last full sync.
    pub(crate) retells_synced: Cell<bool>,
    /// The server tells of all that matters to locks, see `events::subscribe_once`.
    pub(crate) subscribed: Cell<bool>,
    /// The setting that allows evictions is still to be looked at.
    pub(crate) policy_unknown: Cell<bool>,
    /// The server tells of evictions, see `evictions`.
    pub(crate) watches_evictions: Cell<bool>,
    /// The server tells of clients that close, see `undelivered`,
    pub(crate) watches_clients: Cell<bool>,
    /// and that was of use since the last look at it.
    pub(crate) watched_clients: Cell<bool>,
    /// When it was looked at last what nobody tells of.
    pub(crate) looked_around: Cell<Instant>,
    /// How often the sweep timer has come.
    pub(crate) ticks: Cell<u64>,
    /// The longest that the module was at work by itself, in microseconds of processor time.
    pub(crate) longest_stretch: Cell<u64>,
    /// The database and the name of the last key that lost a lock that was held, until the event loop turns; kept while
    /// evictions are watched.
    pub(crate) last_unlinked: RefCell<Option<(i32, Name)>>,
    /// A SETTLE that runs now is the module's own, and rechecks holders (see `DirtyKey`) or not; `None` if it is not.
    pub(crate) settling: Cell<Option<bool>>,
    /// The connection for which LOCK.GUARD runs another command now, 0 if unknown.
    pub(crate) guarding: Cell<Option<u64>>,
    pub(crate) connections: Connections,
    pub(crate) totals: Totals,
    /// How long those waited who were granted out of a queue, in milliseconds.
    pub(crate) wait_times: RefCell<Histogram>,
    /// How long holds lasted, from the first grant to the last release or the end of the lease.
    pub(crate) hold_times: RefCell<Histogram>,
}

/// How often things happened since the module was loaded.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) grants: Total,
    pub(crate) reentries: Total,
    pub(crate) handoffs: Total,
    pub(crate) releases: Total,
    pub(crate) renewals: Total,
    pub(crate) expiries: Total,
    pub(crate) timeouts: Total,
    pub(crate) deadlocks: Total,
    pub(crate) denied: Total,
    pub(crate) evictions: Total,
}

/// Ids of clients that are connections, not scripts: asking the server is dearer than looking here.
/// An id is never given twice, so what was once known stays true.
pub(crate) struct Connections([Cell<u64>; Self::ROOM]);

impl Connections {
    const ROOM: usize = 256;

    const fn new() -> Self {
        Self([const { Cell::new(0) }; Self::ROOM])
    }

    /// `id` is one of them; 0 never is.
    pub(crate) fn knows(&self, id: u64) -> bool {
        id != 0 && self.place(id).get() == id
    }

    /// `id` is one of them. Forgets another in its place.
    pub(crate) fn learn(&self, id: u64) {
        self.place(id).set(id);
    }

    fn place(&self, id: u64) -> &Cell<u64> {
        &self.0[id as usize % Self::ROOM]
    }
}

/// A number that only grows.
#[derive(Default)]
pub(crate) struct Total(Cell<u64>);

impl Total {
    pub(crate) fn add_one(&self) {
        self.0.set(self.0.get() + 1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

thread_local! {
    // Never dropped, so that an access costs no check whether it has been.
    pub(crate) static STATE: ManuallyDrop<State> = ManuallyDrop::new(State::new());
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl State {
    fn new() -> Self {
        Self {
            max_lease: Cell::new(0),
            max_waiters: Cell::new(0),
            max_queued: Cell::new(0),
            mail_timeout: Cell::new(0),
            grace_ms: Cell::new(0),
            grace: Grace::default(),
            lateness: Lateness::default(),
            last_deadline: Cell::new(Instant::default()),
            last_stray_deadline: Cell::new(Instant::default()),
            primary: Cell::new(true),
            listening: Cell::new(true),
            tokens: RefCell::new(TokenClock::new()),
            leases: RefCell::default(),
            queues: RefCell::default(),
            waiters: RefCell::default(),
            post: Post::default(),
            left: RefCell::default(),
            undelivered: RefCell::default(),
            dirty: RefCell::default(),
            arrivals: RefCell::default(),
            walks: RefCell::default(),
            patrol: RefCell::new(Walk::over(Scope::All)),
            dismissals: RefCell::default(),
            crowded: RefCell::default(),
            crowds: RefCell::default(),
            slots: RefCell::default(),
            end_of_turn_armed: Cell::new(false),
            background_armed: Cell::new(false),
            due_timer: Cell::new(None),
            sweep_timer: Cell::new(None),
            asked_for_replicas: Cell::new(Instant::default()),
            warned_of: Cell::new((0, 0)),
            token_clock_due: Cell::new(false),
            loaded: Cell::new(false),
            retells_synced: Cell::new(false),
            subscribed: Cell::new(false),
            policy_unknown: Cell::new(false),
            watches_evictions: Cell::new(false),
            watches_clients: Cell::new(false),
            watched_clients: Cell::new(false),
            looked_around: Cell::new(Instant::default()),
            ticks: Cell::new(0),
            longest_stretch: Cell::new(0),
            last_unlinked: RefCell::default(),
            settling: Cell::new(None),
            guarding: Cell::new(None),
            connections: Connections::new(),
            totals: Totals::default(),
            wait_times: RefCell::default(),
            hold_times: RefCell::default(),
        }
    }

    /// A lease runs until `deadline`.
    pub(crate) fn note_deadline(&self, deadline: Instant) {
        self.last_deadline
            .set(self.last_deadline.get().max(deadline));
    }
}

/// The last token handed out or seen, 0 for none.
pub(crate) fn last_token() -> u64 {
    STATE.with(|state| state.tokens.borrow().last())
}

/// Takes over the token clock of a file or of a primary. False if it cannot be one.
pub(crate) fn load_last_token(last: u64) -> bool {
    if last == 0 {
        return true;
    }
    let Some(token) = Token::new(last) else {
        return false;
    };
    STATE.with(|state| state.tokens.borrow_mut().raise(token));
    true
}
