//! Blocked clients, and what each waits for: a lock, or letters.
//!
//! A client that has been answered goes onto the queue of work, and a timer unblocks it; nothing else does. So between the answer and its
//! delivery the client can only disappear. It stays here until the server is done with it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use mortise_core::mail::{BoxId, Outcome};
use mortise_core::{Instant, WaiterId};

use crate::error::Error;
use crate::ffi::{Blocked, BlockedId, Context, MainThread};
use crate::time::{self, alarms};
use crate::waiting;
use crate::work::queue::{self as work, Work};

static CLIENTS: MainThread<RefCell<Clients>> = MainThread::new(RefCell::new(Clients {
    clients: BTreeMap::new(),
    by_waiter: BTreeMap::new(),
    by_box: BTreeMap::new(),
    limits: BTreeSet::new(),
}));

/// Every blocked client.
pub(crate) fn clients(ctx: &Context<'_>) -> &'static RefCell<Clients> {
    CLIENTS.get(ctx)
}

/// Every blocked client.
#[derive(Debug)]
pub(crate) struct Clients {
    clients: BTreeMap<BlockedId, Client>,
    /// The clients whose request for a lock waits.
    by_waiter: BTreeMap<WaiterId, BlockedId>,
    /// The clients whose LOCK.MAIL waits, and until when.
    by_box: BTreeMap<BoxId, (BlockedId, Instant)>,
    limits: BTreeSet<(Instant, BoxId)>,
}

#[derive(Debug)]
struct Client {
    /// `None` once it has been answered: then the queue of work has it.
    blocked: Option<Blocked>,
    awaits: Awaits,
    /// `None` while it waits. A LOCK.MAIL that is not refused gets its letters.
    answer: Option<Outcome>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Awaits {
    Lock(WaiterId),
    Letters(MailCall),
}

impl Clients {
    /// How many are blocked or about to be unblocked.
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    /// How many are blocked and not answered yet.
    pub(crate) fn waiting(&self) -> usize {
        self.by_waiter.len() + self.by_box.len()
    }

    /// Whether a LOCK.MAIL waits for the box.
    pub(crate) fn is_read(&self, id: BoxId) -> bool {
        self.by_box.contains_key(&id)
    }

    /// A client has been blocked until its request for a lock is answered.
    pub(super) fn add_waiter(&mut self, blocked: Blocked, waiter: WaiterId) {
        let id = self.add(blocked, Awaits::Lock(waiter));
        self.by_waiter.insert(waiter, id);
    }

    /// A LOCK.MAIL has been blocked until its box has letters, but not beyond `limit`.
    pub(super) fn add_reader(&mut self, blocked: Blocked, call: MailCall, limit: Instant) {
        let id = self.add(blocked, Awaits::Letters(call));
        self.by_box.insert(call.id, (id, limit));
        self.limits.insert((limit, call.id));
    }

    fn add(&mut self, blocked: Blocked, awaits: Awaits) -> BlockedId {
        let id = blocked.id();
        let client = Client {
            blocked: Some(blocked),
            awaits,
            answer: None,
        };
        self.clients.insert(id, client);
        id
    }

    /// What the client waits for, and its answer once it has one.
    pub(super) fn get(&self, id: BlockedId) -> Option<(Awaits, Option<Outcome>)> {
        let client = self.clients.get(&id)?;
        Some((client.awaits, client.answer.clone()))
    }

    /// Forgets the client, with which the server has done. Returns what it waited for, and its answer.
    pub(super) fn remove(&mut self, id: BlockedId) -> Option<(Awaits, Option<Outcome>)> {
        let client = self.clients.remove(&id)?;
        Some((client.awaits, client.answer))
    }

    fn answer(&mut self, id: BlockedId, answer: Outcome) -> Option<Blocked> {
        let client = self.clients.get_mut(&id)?;
        client.answer = Some(answer);
        client.blocked.take()
    }
}

/// Answers the client of a request for a lock.
pub(super) fn answer_waiter(ctx: &Context<'_>, waiter: WaiterId, answer: Outcome) {
    let mut clients = clients(ctx).borrow_mut();
    let id = clients.by_waiter.remove(&waiter);
    let blocked = id.and_then(|id| clients.answer(id, answer));
    drop(clients);
    if let Some(blocked) = blocked {
        work::push(ctx, Work::Wake(blocked));
    }
}

/// Answers the LOCK.MAIL that waits for the box: with letters, or with `refusal`.
pub(super) fn answer_reader(ctx: &Context<'_>, id: BoxId, refusal: Option<&Error>) {
    let mut clients = clients(ctx).borrow_mut();
    let Some((blocked, limit)) = clients.by_box.remove(&id) else {
        return;
    };
    clients.limits.remove(&(limit, id));
    let answer = refusal.map_or(Outcome::Denied, |error| {
        Outcome::Refused(error.text().into())
    });
    let blocked = clients.answer(blocked, answer);
    drop(clients);
    if let Some(blocked) = blocked {
        work::push(ctx, Work::Wake(blocked));
    }
}

/// Answers one LOCK.MAIL whose time is up, or which waits on a server that is no longer a primary. False if there is none.
pub(crate) fn end_reader(ctx: &Context<'_>, now: Instant) -> bool {
    let first = clients(ctx).borrow().limits.first().copied();
    let Some((limit, id)) = first else {
        return false;
    };
    // Not every server answers blocked clients by itself when its role changes.
    if !time::is_primary(ctx) {
        answer_reader(ctx, id, Some(&Error::NO_PRIMARY));
        return true;
    }
    if limit > now {
        return false;
    }
    answer_reader(ctx, id, None);
    true
}

/// Starts the timer for what is due next, if it is not under way: a wait is over, a lock with waiters loses a hold, or the grace ends.
pub(crate) fn arm(ctx: &Context<'_>) {
    let mut next = clients(ctx)
        .borrow()
        .limits
        .first()
        .map(|(limit, _)| *limit);
    let queues = waiting::queues(ctx).borrow();
    if !queues.is_empty() {
        let (limit, deadline) = (queues.next_limit(), queues.next_deadline());
        let dues = [next, limit, deadline, time::grace(ctx).next_due()];
        next = dues.into_iter().flatten().min();
    }
    if let Some(next) = next {
        alarms::due_at(ctx, next);
    }
}

/// A LOCK.MAIL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MailCall {
    pub(crate) id: BoxId,
    /// When it arrived, in microseconds of the boot-time clock.
    pub(crate) arrived: u64,
    /// How many letters it takes at most.
    pub(crate) count: usize,
    /// The id of its connection.
    pub(crate) client: u64,
}
