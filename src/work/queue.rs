//! The one queue of deferred work: what has to be done without a command, and where.
//!
//! Commands and callbacks put work here, because a callback must not write, replicate or wake. Timers do it before the event
//! loop turns (`run`): the most important kind first, and work of one kind in the order in which it came. The same work on the
//! same target is queued once, so a thousand waiters that leave one queue together need one settle.
//!
//! A key is remembered by the home of its database, because SWAPDB moves locks.

use std::cell::{LazyCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::iter::Flatten;

use mortise_core::mail::BoxId;
use mortise_core::{
    Db, HomeKey, Homes, KeyId, KeyRef, LeaseTables, Queues, Remains, Undo, Visited, WaiterId,
};

use crate::error::Error;
use crate::ffi::{Blocked, Context, MainThread};
use crate::time::alarms;

static QUEUE: MainThread<LazyCell<RefCell<WorkQueue>>> =
    MainThread::new(LazyCell::new(RefCell::default));

static HOMES: MainThread<LazyCell<RefCell<Homes>>> =
    MainThread::new(LazyCell::new(RefCell::default));

/// A piece of work.
#[derive(Debug)]
pub(crate) enum Work {
    /// Unblock a client that has been answered.
    Wake(Blocked),
    /// Answer the LOCK.MAIL that waits for the box, which got a letter.
    AnswerMail(BoxId),
    /// Settle a key at which a waiter may be granted, or a grant has to be undone.
    Settle(HomeKey),
    /// Settle a key that the server did not let us write, once it accepts writes.
    SettleHeldBack(HomeKey),
    /// Refuse waiters, one after the other.
    Refuse(Refusal),
    /// Settle the keys of a scan, one after the other.
    Scan(Scan),
    /// Close the boxes that nobody asks for, and empty them, a piece at a time.
    CloseBoxes,
    /// Settle the keys that could not be settled the last time, one after the other: those behind this one, or all.
    RetryFailing(Option<KeyId>),
    /// Enter a lock that came by COPY, RESTORE or a load into the lease order, and replicate its leases once more if a client restored it.
    Enter(HomeKey),
    /// Replicate the token clock.
    SendTokenClock,
    /// Warn if the server may evict locks that are held.
    WarnOfEvictions,
    /// Drop some of the holds whose lease is over, of which the lock has very many.
    DropEnded(HomeKey),
    /// Count and free holds that have left their lock, one after the other.
    FreeHolds(EndedHolds),
    /// Free the tables of databases that were emptied, a few entries at a time.
    FreeTables(LeaseTables),
    /// Free what need not be undone any more, one after the other.
    FreeUndone(Flatten<btree_map::IntoValues<HomeKey, Vec<Undo>>>),
}

/// The kinds of work, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Wake,
    AnswerMail,
    Settle,
    HeldBack,
    CloseBoxes,
    Refuse,
    Scan,
    RetryFailing,
    Enter,
    SendTokenClock,
    WarnOfEvictions,
    DropEnded,
    Free,
}

const KINDS: usize = Kind::Free as usize + 1;

/// What work is done on. Work of one kind is queued once for each target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Server,
    Box(BoxId),
    Key(HomeKey),
    Scope(Scope),
    /// The requests for several keys in a scope.
    Several(Scope),
}

/// Waiters that all get the same error: at a key that became another type, in a slot that has left, on a server that is no
/// longer a primary.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// At which keys.
    pub(crate) scan: Scan,
    /// The key whose waiters are being refused.
    pub(crate) key: Option<KeyId>,
    /// Whether it spares requests for one key.
    pub(crate) only_several: bool,
    /// The last waiter to be refused: those that came later are not concerned.
    pub(crate) last: WaiterId,
    pub(crate) error: Error,
}

/// Holds that have left their lock together.
#[derive(Debug)]
pub(crate) struct EndedHolds {
    pub(crate) key: KeyId,
    pub(crate) holds: Box<Remains>,
    /// Their leases are over, which has not been counted yet.
    pub(crate) expired: bool,
}

impl Work {
    /// Its kind, and its target if it is queued once for each.
    fn place(&self) -> (Kind, Option<Target>) {
        match self {
            Self::Wake(_) => (Kind::Wake, None),
            Self::AnswerMail(id) => (Kind::AnswerMail, Some(Target::Box(*id))),
            Self::Settle(key) => (Kind::Settle, Some(Target::Key(key.clone()))),
            Self::SettleHeldBack(key) => (Kind::HeldBack, Some(Target::Key(key.clone()))),
            Self::Refuse(refusal) => (Kind::Refuse, Some(refusal.target())),
            Self::Scan(scan) => (Kind::Scan, Some(Target::Scope(scan.scope().clone()))),
            Self::CloseBoxes => (Kind::CloseBoxes, Some(Target::Server)),
            Self::RetryFailing(_) => (Kind::RetryFailing, Some(Target::Server)),
            Self::Enter(_) => (Kind::Enter, None),
            Self::SendTokenClock => (Kind::SendTokenClock, Some(Target::Server)),
            Self::WarnOfEvictions => (Kind::WarnOfEvictions, Some(Target::Server)),
            Self::DropEnded(key) => (Kind::DropEnded, Some(Target::Key(key.clone()))),
            Self::FreeHolds(_) | Self::FreeTables(_) | Self::FreeUndone(_) => (Kind::Free, None),
        }
    }
}

impl Refusal {
    fn target(&self) -> Target {
        let scope = self.scan.scope().clone();
        match self.only_several {
            true => Target::Several(scope),
            false => Target::Scope(scope),
        }
    }
}

#[derive(Debug)]
struct Queued {
    work: Work,
    /// It was taken before, and put back: the same work may stand behind it once more.
    has_begun: bool,
}

#[derive(Debug, Default)]
struct WorkQueue {
    /// The work of each kind, by its number: later work has a higher one.
    kinds: [BTreeMap<u64, Queued>; KINDS],
    /// The targets of what is queued and has not begun.
    targets: BTreeSet<(Kind, Target)>,
    last: u64,
    /// The server has refused a write that a timer tried.
    gate_closed: bool,
}

impl WorkQueue {
    fn push(&mut self, work: Work) {
        let (kind, target) = work.place();
        if let Some(target) = target
            && !self.targets.insert((kind, target))
        {
            return;
        }
        self.last += 1;
        let has_begun = false;
        self.kinds[kind as usize].insert(self.last, Queued { work, has_begun });
    }

    fn take(&mut self, kind: Kind) -> Option<(u64, Work)> {
        let (number, Queued { work, has_begun }) = self.kinds[kind as usize].pop_first()?;
        if !has_begun && let (_, Some(target)) = work.place() {
            self.targets.remove(&(kind, target));
        }
        Some((number, work))
    }
}

fn queue(ctx: &Context<'_>) -> &'static RefCell<WorkQueue> {
    QUEUE.get(ctx)
}

/// Does the work before the event loop turns, or as soon as it can be done.
pub(crate) fn push(ctx: &Context<'_>, work: Work) {
    queue(ctx).borrow_mut().push(work);
    alarms::at_end_of_turn(ctx);
}

/// Does the work on the key before the event loop turns, or as soon as it can be done.
pub(crate) fn push_key(ctx: &Context<'_>, key: KeyRef<'_>, work: fn(HomeKey) -> Work) {
    push(ctx, work(home_key(ctx, key)));
}

/// Frees holds that have left the lock at the key, one after the other. `expired`: their leases are over, which has not been counted yet.
pub(crate) fn free_holds(ctx: &Context<'_>, key: KeyRef<'_>, holds: Box<Remains>, expired: bool) {
    let holds = EndedHolds {
        key: key.to_id(),
        holds,
        expired,
    };
    push(ctx, Work::FreeHolds(holds));
}

/// Settles the key before the event loop turns: a waiter may be granted there, or a grant has to be undone.
pub(crate) fn settle(ctx: &Context<'_>, key: KeyRef<'_>) {
    push_key(ctx, key, Work::Settle);
}

/// Settles the keys with waiters in `scope`, for a change that no event of a single key shows: a flush, a swap, the end of a
/// load or of the grace, a slot that changes hands.
pub(crate) fn scan(ctx: &Context<'_>, scope: Scope) {
    push(ctx, Work::Scan(Scan::over(scope)));
}

/// The first work of that kind, and its number, by which it can be put back.
pub(crate) fn take(ctx: &Context<'_>, kind: Kind) -> Option<(u64, Work)> {
    queue(ctx).borrow_mut().take(kind)
}

/// Puts back work that was taken and is not done yet: it goes on before other work of its kind.
pub(crate) fn put_back(ctx: &Context<'_>, number: u64, work: Work) {
    let (kind, has_begun) = (work.place().0, true);
    let queued = Queued { work, has_begun };
    queue(ctx).borrow_mut().kinds[kind as usize].insert(number, queued);
}

/// How much work of that kind there is.
pub(crate) fn len(ctx: &Context<'_>, kind: Kind) -> usize {
    queue(ctx).borrow().kinds[kind as usize].len()
}

/// Whether there is nothing to do but to wake clients.
pub(crate) fn only_wakes(ctx: &Context<'_>) -> bool {
    let others = Kind::Wake as usize + 1..;
    queue(ctx).borrow().kinds[others]
        .iter()
        .all(BTreeMap::is_empty)
}

/// Where the databases of keys are now.
pub(crate) fn homes(ctx: &Context<'_>) -> &'static RefCell<Homes> {
    HOMES.get(ctx)
}

/// The key, in a form that stays true wherever SWAPDB puts its database.
pub(crate) fn home_key(ctx: &Context<'_>, key: KeyRef<'_>) -> HomeKey {
    homes(ctx).borrow().home_key(key)
}

/// The key with the number that its database has now.
pub(crate) fn key_of(ctx: &Context<'_>, key: &HomeKey) -> KeyId {
    homes(ctx).borrow().key_of(key)
}

/// Records that the server has refused a write by a timer, or that it may be tried again.
pub(crate) fn set_gate_closed(ctx: &Context<'_>, closed: bool) {
    queue(ctx).borrow_mut().gate_closed = closed;
}

/// Whether no key can be settled from a timer just now.
pub(crate) fn is_blocked(ctx: &Context<'_>) -> bool {
    queue(ctx).borrow().gate_closed || ctx.avoid_replication_traffic()
}

/// Some of the keys with waiters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    All,
    /// The keys that nobody holds, as far as is known.
    Unheld,
    Database(Db),
    Slot(u16),
    Key(KeyId),
}

/// A scan that is under way.
#[derive(Debug)]
pub(crate) struct Scan {
    scope: Scope,
    /// The last key that was visited.
    last: Option<Visited>,
}

/// One step of a scan.
#[derive(Debug)]
pub(crate) enum Step {
    /// To this key.
    Key(KeyId),
    /// Past a key that is out of scope.
    Passed,
    /// There are no more keys.
    End,
}

impl Scan {
    pub(crate) const fn over(scope: Scope) -> Self {
        Self { scope, last: None }
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Goes one key on.
    pub(crate) fn step(&mut self, queues: &Queues) -> Step {
        let (keys, last) = (queues.waiting_keys(), self.last);
        let next = match &self.scope {
            Scope::All | Scope::Database(_) => keys.after(last),
            Scope::Unheld => keys.unheld_after(last),
            Scope::Slot(slot) => keys.in_slot_after(*slot, last),
            Scope::Key(key) => keys.find(key.as_ref()).filter(|_| last.is_none()),
        };
        let Some((visited, key)) = next else {
            return Step::End;
        };
        self.last = Some(visited);
        match &self.scope {
            Scope::Database(db) if key.db != *db => Step::Passed,
            _ => Step::Key(key.clone()),
        }
    }
}
