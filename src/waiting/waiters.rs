//! Blocked requests: from the moment they wait to the moment their client has its reply.
//!
//! ```text
//!  wait ──► queued ──┬─ granted by settle ──────────► decided ──► wake list ──► delivered ──► freed
//!                    ├─ time is up, WRONGTYPE, … ───►    │                          │
//!                    └─ CLIENT UNBLOCK, disconnected ────┘ (answered on the spot)   │
//!                                                     granted and gone: given back ◄┘
//! ```
//!
//! A waiter is decided once, here, on the module's own state. A decided one goes onto the wake
//! list, which a timer drains: nothing else unblocks a client, and so nothing can come between the
//! decision and its delivery but the client's going away. A grant that nobody could be told of is
//! undone, see `undelivered`.

use std::collections::{HashMap, VecDeque};

use mortise_core::{Decided, Instant, KeyId, Token, Verdict, WaiterId};

use crate::error::Error;
use crate::ffi::{Blocked, Context};
use crate::state::{ROOM_KEPT, STATE, State};
use crate::turn::dirty;
use crate::turn::relook::{self, Scope};
use crate::turn::timers;
use crate::waiting::mail;
use crate::waiting::undelivered::{self, UndeliveredGrant};

/// What a waiter's client is answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Token(Token),
    Null,
    Error(Error),
}

/// A blocked client.
#[derive(Debug)]
struct Entry {
    waiter: WaiterId,
    /// `None` while it waits.
    answer: Option<Answer>,
    /// The client got its answer.
    delivered: bool,
}

/// Every blocked client.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_handle: HashMap<Blocked, Entry>,
    handles: HashMap<WaiterId, Blocked>,
    /// Decided, to be unblocked by the next timer.
    wake: VecDeque<Blocked>,
}

impl Waiters {
    /// A client that was blocked just now.
    pub(crate) fn add(&mut self, waiter: WaiterId, blocked: Blocked) {
        let entry = Entry {
            waiter,
            answer: None,
            delivered: false,
        };
        self.by_handle.insert(blocked, entry);
        self.handles.insert(waiter, blocked);
    }

    /// Of a crowd that has gone no memory is kept.
    fn shrink(&mut self) {
        if self.by_handle.is_empty() {
            self.by_handle.shrink_to(ROOM_KEPT);
            self.handles.shrink_to(ROOM_KEPT);
            self.wake.shrink_to(ROOM_KEPT);
        }
    }

    /// Clients whose requests wait.
    pub(crate) fn blocked(&self) -> usize {
        self.handles.len()
    }

    /// Clients that are blocked or about to be let go.
    pub(crate) fn len(&self) -> usize {
        self.by_handle.len()
    }
}

/// Somebody waits at the key.
pub(crate) fn wait_at(state: &State, db: i32, name: &[u8]) -> bool {
    let queues = state.queues.borrow();
    !queues.is_empty() && queues.get(db as u32, name).is_some()
}

/// A settle has decided a waiter of the key.
pub(crate) fn decide(state: &State, key: &KeyId, decided: &Decided, now: Instant) {
    if mail::decide(state, key, decided, now) {
        return;
    }
    let waiter = &decided.waiter;
    let answer = match decided.verdict {
        Verdict::Granted {
            grant,
            stake,
            before,
            ..
        } => {
            let undelivered = UndeliveredGrant {
                at: (key.db as i32, (*key.name).into()),
                owner: waiter.owner.clone(),
                granted: stake.touched,
                token: stake.token,
                before,
                told: false,
            };
            undelivered::granted(state, waiter.id, undelivered);
            Answer::Token(grant.token())
        }
        Verdict::UpgradeLost => Answer::Null,
        Verdict::Refused(error) => Answer::Error(Error::of(error, waiter.fence)),
    };
    answer_waiter(state, waiter.id, answer);
}

/// The waiter can never be let in.
pub(crate) fn refuse(state: &State, id: WaiterId, error: Error) {
    end(state, id, Answer::Error(error));
}

/// A waiter leaves its queue with an answer. Its key, if it still waited.
fn end(state: &State, id: WaiterId, answer: Answer) -> Option<KeyId> {
    let removed = state.queues.borrow_mut().remove(id);
    if let Some((key, waiter)) = &removed
        && mail::answer(state, key, waiter, &answer)
    {
        return Some(key.clone());
    }
    answer_waiter(state, id, answer);
    removed.map(|(key, _)| key)
}

/// Its owner has left the key.
pub(crate) fn answer_null(state: &State, id: WaiterId) {
    end(state, id, Answer::Null);
}

/// A request by mail leaves its queue, and nobody is told.
pub(crate) fn withdraw(state: &State, id: WaiterId) {
    let removed = state.queues.borrow_mut().remove(id);
    if let Some((key, _)) = removed {
        mark_if_waited_at(state, &key);
    }
}

/// Lets a client go before the event loop turns.
pub(crate) fn wake(state: &State, blocked: Blocked) {
    state.waiters.borrow_mut().wake.push_back(blocked);
    timers::at_end_of_turn(state);
}

fn answer_waiter(state: &State, id: WaiterId, answer: Answer) {
    let mut waiters = state.waiters.borrow_mut();
    let Some(blocked) = waiters.handles.remove(&id) else {
        return;
    };
    if let Some(entry) = waiters.by_handle.get_mut(&blocked) {
        entry.answer = Some(answer);
        waiters.wake.push_back(blocked);
    }
    drop(waiters);
    timers::at_end_of_turn(state);
}

/// Lets the next decided client go. False if there is none.
pub(crate) fn wake_next(state: &State) -> bool {
    let next = state.waiters.borrow_mut().wake.pop_front();
    match next {
        Some(blocked) => blocked.unblock(),
        None => return false,
    }
    true
}

/// A decided client is still to be let go.
pub(crate) fn some_to_wake(state: &State) -> bool {
    !state.waiters.borrow().wake.is_empty()
}

/// Answers one waiter whose time is up. False if there is none.
pub(crate) fn time_one_out(state: &State, now: Instant) -> bool {
    let Some(id) = state.queues.borrow().timed_out(now) else {
        return false;
    };
    state.totals.timeouts.add_one();
    if let Some(key) = end(state, id, Answer::Null) {
        mark_if_waited_at(state, &key);
    }
    true
}

/// Somebody has left the queue: whom he kept out may be let in.
fn mark_if_waited_at(state: &State, key: &KeyId) {
    if wait_at(state, key.db as i32, &key.name) {
        dirty::mark_queue(key.db as i32, &key.name);
    }
}

/// Everybody who waits is looked at when the grace ends.
pub(crate) fn look_for_end_of_grace(state: &State, now: Instant) {
    if state.grace.is_newly_over(now) {
        relook::begin(state, Scope::All);
    }
}

/// When a waiter's time is up, a lock with waiters loses a hold, or the grace ends.
pub(crate) fn next_due(state: &State) -> Option<Instant> {
    let queues = state.queues.borrow();
    if queues.is_empty() {
        return state.post.next_limit();
    }
    let dues = [
        queues.next_limit(),
        queues.next_deadline(),
        state.grace.next_due(),
    ];
    let dues = dues.into_iter().chain([state.post.next_limit()]);
    dues.flatten().min()
}

/// The server asks for the reply of a client that was let go.
pub(crate) fn on_reply(ctx: &Context<'_>, blocked: Blocked) {
    STATE.with(|state| deliver(ctx, state, blocked));
}

/// CLIENT UNBLOCK. What was decided already is delivered; else the wait ends.
pub(crate) fn on_unblock(ctx: &Context<'_>, blocked: Blocked) {
    STATE.with(|state| {
        leave(state, blocked);
        deliver(ctx, state, blocked);
    });
}

/// The client is gone.
pub(crate) fn on_disconnect(state: &State, blocked: Blocked) {
    leave(state, blocked);
}

/// The server has done with the handle.
pub(crate) fn on_freed(state: &State, blocked: Blocked) {
    let entry = {
        let mut waiters = state.waiters.borrow_mut();
        let entry = waiters.by_handle.remove(&blocked);
        waiters.shrink();
        entry
    };
    if let Some(entry) = entry
        && !entry.delivered
    {
        undelivered::untold(state, entry.waiter);
    }
}

/// A client that was not decided yet waits no more.
fn leave(state: &State, blocked: Blocked) {
    let waiters = state.waiters.borrow();
    let Some(entry) = waiters.by_handle.get(&blocked) else {
        return;
    };
    if entry.answer.is_some() {
        return;
    }
    let id = entry.waiter;
    drop(waiters);
    if let Some(key) = end(state, id, Answer::Null) {
        mark_if_waited_at(state, &key);
    }
}

fn deliver(ctx: &Context<'_>, state: &State, blocked: Blocked) {
    let (id, answer) = {
        let mut waiters = state.waiters.borrow_mut();
        let Some(entry) = waiters.by_handle.get_mut(&blocked) else {
            return ctx.reply_null();
        };
        entry.delivered = true;
        (entry.waiter, entry.answer.clone())
    };
    match answer {
        // Not if its owner has left the key meanwhile.
        Some(Answer::Token(token)) if undelivered::told(ctx, state, id, ctx.client_id()) => {
            ctx.reply_integer(token.get() as i64);
        }
        Some(Answer::Error(error)) => ctx.reply_error(&error.to_string()),
        Some(Answer::Token(_) | Answer::Null) | None => ctx.reply_null(),
    }
}
