//! What this layer knows, from one turn of the event loop to the next.
//!
//! Each field has a cell of its own, so that a borrow of one part blocks no other. A borrower
//! copies out what it needs, drops the borrow, and only then calls the server or another part,
//! which may come back here.

use std::cell::{Cell, LazyCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use mortise_core::{Deque, Instant, KeyId, SlotSet, WaiterId};

use crate::error::Error;
use crate::ffi::{Context, MainThread};
use crate::waiting::walk::{Scope, Walk};

static TURN: MainThread<Turn> = MainThread::new(Turn {
    slots: LazyCell::new(RefCell::default),
    dismissals: RefCell::new(Deque::new()),
    aside: RefCell::new(Aside {
        pauses: BTreeMap::new(),
        due: BTreeSet::new(),
    }),
    patrol: RefCell::new(Walk::over(Scope::Unheld)),
    looked_around: Cell::new(Instant::from_millis(0)),
    ticks: Cell::new(0),
    settle_call: Cell::new(None),
});

pub(crate) fn get(ctx: &Context<'_>) -> &'static Turn {
    TURN.get(ctx)
}

/// What the module's own work has to remember.
pub(crate) struct Turn {
    /// The cluster's slots that this server has.
    pub(super) slots: LazyCell<RefCell<Slots>>,
    /// The dismissals that are under way.
    pub(super) dismissals: RefCell<Deque<Dismissal>>,
    /// Keys that cannot be settled just now.
    pub(super) aside: RefCell<Aside>,
    /// The walk over the keys that nobody holds.
    pub(super) patrol: RefCell<Walk>,
    /// When the module last polled the state for which there is no event.
    pub(super) looked_around: Cell<Instant>,
    /// How often the sweep timer has fired.
    pub(super) ticks: Cell<u64>,
    /// The call that is under way. The command takes it from here, so any other caller of the command is refused.
    pub(super) settle_call: Cell<Option<SettleCall>>,
}

/// The slots of this server.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// Slots whose requests this server serves: its own, and those that are moving to it.
    pub(super) here: SlotSet,
    /// Slots that are moving to it: it serves clients that follow an ASK.
    pub(super) importing: Vec<u16>,
    /// Slots that are leaving it: it serves the keys that are still here.
    pub(super) migrating: Vec<u16>,
    pub(super) asked: Instant,
}

/// The waiters of a dismissal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meant {
    /// Everybody at the key.
    Key(KeyId),
    /// Everybody in the slot.
    Slot(u16),
    /// The requests for several keys in the slot.
    SeveralIn(u16),
    /// Everybody.
    All,
}

/// A dismissal that is under way.
#[derive(Debug)]
pub(super) struct Dismissal {
    /// The key whose waiters are being answered.
    pub(super) key: Option<KeyId>,
    /// The walk that supplies the keys after it.
    pub(super) walk: Option<Walk>,
    /// Which waiters it dismisses.
    pub(super) meant: Meant,
    /// The last waiter that it dismisses.
    pub(super) last: WaiterId,
    pub(super) error: Error,
}

#[derive(Debug)]
pub(super) struct Aside {
    /// By key, the pause after its last failure, in milliseconds.
    pub(super) pauses: BTreeMap<KeyId, u64>,
    /// When to retry those that have waiters. The sweep retries the others.
    pub(super) due: BTreeSet<(Instant, KeyId)>,
}

/// A call of the module's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettleCall {
    /// Grants this request all its keys, instead of settling one.
    pub(crate) several: Option<WaiterId>,
}
