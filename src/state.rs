//! What the module knows besides the keys: settings, clocks, orders, marks, totals.
//!
//! It belongs to the server's main thread; a background thread would see a state of its own and
//! could not touch this one. Every part has a cell of its own, and no borrow is held across a
//! call into the server, because such a call may come back through a callback.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;

use mortise_core::{Instant, LeaseOrder, Token, TokenClock};

use crate::clock;
use crate::ffi::Timer;

/// The name of a key.
pub(crate) type Name = Box<[u8]>;

pub(crate) struct State {
    pub(crate) max_lease: Cell<u64>,
    pub(crate) max_waiters: Cell<u64>,
    pub(crate) grace: Cell<u64>,
    /// Nothing is granted before this moment.
    pub(crate) grace_until: Cell<Instant>,
    /// This server is no replica.
    pub(crate) primary: Cell<bool>,
    /// Somebody may hear an effect, see `effect`.
    pub(crate) listening: Cell<bool>,
    pub(crate) tokens: RefCell<TokenClock>,
    /// By database: the locks in the order in which they lose their first hold.
    pub(crate) leases: RefCell<Vec<LeaseOrder<Name>>>,
    /// Keys that callbacks saw change, to be looked at by a timer.
    pub(crate) marks: RefCell<VecDeque<(i32, Name)>>,
    /// A timer is under way for the marks.
    pub(crate) marks_timer: Cell<bool>,
    pub(crate) sweep_timer: Cell<Option<Timer>>,
    /// When the sweep timer came last.
    pub(crate) swept: Cell<Instant>,
    /// When the server was last asked whether it has replicas.
    pub(crate) asked_for_replicas: Cell<Instant>,
    /// Replicas and the AOF are to be told how far the token clock has come.
    pub(crate) token_clock_due: Cell<bool>,
    /// A SETTLE that runs now is the module's own.
    pub(crate) settling: Cell<bool>,
    pub(crate) totals: Totals,
}

/// How often things happened since the module was loaded.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) grants: Total,
    pub(crate) reentries: Total,
    pub(crate) releases: Total,
    pub(crate) renewals: Total,
    pub(crate) expiries: Total,
    pub(crate) denied: Total,
}

/// A number that only grows.
#[derive(Default)]
pub(crate) struct Total(Cell<u64>);

impl Total {
    const fn new() -> Self {
        Self(Cell::new(0))
    }

    pub(crate) fn add_one(&self) {
        self.0.set(self.0.get() + 1);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

thread_local! {
    // Never dropped, so that an access costs no check whether it has been.
    pub(crate) static STATE: ManuallyDrop<State> = const { ManuallyDrop::new(State::new()) };
}

impl State {
    const fn new() -> Self {
        Self {
            max_lease: Cell::new(0),
            max_waiters: Cell::new(0),
            grace: Cell::new(0),
            grace_until: Cell::new(Instant::from_millis(0)),
            primary: Cell::new(true),
            listening: Cell::new(true),
            tokens: RefCell::new(TokenClock::new()),
            leases: RefCell::new(Vec::new()),
            marks: RefCell::new(VecDeque::new()),
            marks_timer: Cell::new(false),
            sweep_timer: Cell::new(None),
            swept: Cell::new(Instant::from_millis(0)),
            asked_for_replicas: Cell::new(Instant::from_millis(0)),
            token_clock_due: Cell::new(false),
            settling: Cell::new(false),
            totals: Totals {
                grants: Total::new(),
                reentries: Total::new(),
                releases: Total::new(),
                renewals: Total::new(),
                expiries: Total::new(),
                denied: Total::new(),
            },
        }
    }

    /// The lease order of database `db`.
    pub(crate) fn leases_of<T>(&self, db: i32, act: impl FnOnce(&mut LeaseOrder<Name>) -> T) -> T {
        let db = usize::try_from(db).unwrap_or(0);
        let mut leases = self.leases.borrow_mut();
        if leases.len() <= db {
            leases.resize_with(db + 1, LeaseOrder::new);
        }
        act(&mut leases[db])
    }

    /// Nothing is granted now: the server or its role is too young, see `lock.grace`.
    pub(crate) fn in_grace(&self, now: Instant) -> bool {
        now < self.grace_until.get()
    }

    /// The grace begins, with the length configured now.
    pub(crate) fn start_grace(&self) {
        self.grace_until.set(clock::now().after(self.grace.get()));
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
