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
//! undone, unless its hold has been touched since.

use std::collections::{HashMap, VecDeque};

use mortise_core::{
    Decided, Instant, KeyId, Owner, OwnerRef, Stake, Token, Touched, Verdict, WaiterId,
};

use crate::error::Error;
use crate::ffi::{Blocked, Context};
use crate::state::{Name, ROOM_KEPT, STATE, State, Swap};
use crate::turn::dirty;
use crate::turn::timers;
use crate::waiting::mail;

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
    /// What to take back if it never does.
    grant_to_undo: Option<UndeliveredGrant>,
}

/// A grant that has to be undone if nobody can be told of it.
#[derive(Clone, Debug)]
pub(crate) struct UndeliveredGrant {
    pub(crate) at: (i32, Name),
    pub(crate) owner: Owner,
    pub(crate) granted: Touched,
    /// The hold's token then: one that is made anew has another.
    pub(crate) token: Token,
    pub(crate) before: Option<Stake>,
}

/// Every blocked client.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_handle: HashMap<Blocked, Entry>,
    handles: HashMap<WaiterId, Blocked>,
    /// Decided, to be unblocked by the next timer.
    wake: VecDeque<Blocked>,
    /// By key, the grants to be undone when it is settled.
    undelivered: HashMap<(i32, Name), Vec<UndeliveredGrant>>,
}

impl Waiters {
    /// A client that was blocked just now.
    pub(crate) fn add(&mut self, waiter: WaiterId, blocked: Blocked) {
        let entry = Entry {
            waiter,
            answer: None,
            delivered: false,
            grant_to_undo: None,
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

/// A grant at the key has to be undone.
pub(crate) fn undelivered_at(state: &State, db: i32, name: &[u8]) -> bool {
    let waiters = state.waiters.borrow();
    !waiters.undelivered.is_empty() && waiters.undelivered.contains_key(&(db, name.into()))
}

/// The grants at the key that have to be undone, the last one first.
pub(crate) fn take_undelivered(state: &State, db: i32, name: &[u8]) -> Vec<UndeliveredGrant> {
    let mut waiters = state.waiters.borrow_mut();
    if waiters.undelivered.is_empty() {
        return Vec::new();
    }
    let mut undelivered = waiters
        .undelivered
        .remove(&(db, name.into()))
        .unwrap_or_default();
    if waiters.undelivered.is_empty() {
        waiters.undelivered.shrink_to(ROOM_KEPT);
    }
    undelivered.reverse();
    undelivered
}

/// The grant stands because its hold has been touched since. If that was another grant of which nobody has heard yet,
/// undoing that one undoes both.
pub(crate) fn hand_on(state: &State, grant_to_undo: &UndeliveredGrant) {
    mail::hand_on(state, grant_to_undo);
    let mut waiters = state.waiters.borrow_mut();
    let untold = waiters
        .by_handle
        .values_mut()
        .filter(|entry| !entry.delivered);
    for later in untold.filter_map(|entry| entry.grant_to_undo.as_mut()) {
        let follows = later
            .before
            .is_some_and(|before| before.touched == grant_to_undo.granted);
        if follows && later.at == grant_to_undo.at && later.owner == grant_to_undo.owner {
            later.before = grant_to_undo.before;
            return;
        }
    }
}

/// Two databases have changed places, and with them the locks whose grants may have to be undone. The waiters stay.
pub(crate) fn swap(state: &State, swap: Swap) {
    let mut waiters = state.waiters.borrow_mut();
    for entry in waiters.by_handle.values_mut() {
        if let Some(grant_to_undo) = &mut entry.grant_to_undo {
            grant_to_undo.at.0 = swap.of(grant_to_undo.at.0);
        }
    }
    let undelivered = std::mem::take(&mut waiters.undelivered);
    waiters.undelivered = undelivered
        .into_iter()
        .map(|((db, name), undelivered)| ((swap.of(db), name), undelivered))
        .collect();
}

/// A settle has decided a waiter of the key.
pub(crate) fn decide(state: &State, key: &KeyId, decided: &Decided, now: Instant) {
    if mail::decide(state, key, decided, now) {
        return;
    }
    let waiter = &decided.waiter;
    let (answer, grant_to_undo) = match decided.verdict {
        Verdict::Granted {
            grant,
            stake,
            before,
            ..
        } => {
            let grant_to_undo = UndeliveredGrant {
                at: (key.db as i32, (*key.name).into()),
                owner: waiter.owner.clone(),
                granted: stake.touched,
                token: stake.token,
                before,
            };
            (Answer::Token(grant.token()), Some(grant_to_undo))
        }
        Verdict::UpgradeLost => (Answer::Null, None),
        Verdict::Refused(error) => (Answer::Error(Error::of(error, waiter.fence)), None),
    };
    answer_waiter(state, waiter.id, answer, grant_to_undo);
}

/// A waiter that became an upgrade has closed a cycle.
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
    answer_waiter(state, id, answer, None);
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

/// Blocked requests of `owner` at the key that were granted and not answered yet are answered null. True if there was one.
pub(crate) fn withdraw_undelivered(state: &State, key: &KeyId, owner: OwnerRef<'_>) -> bool {
    let mut waiters = state.waiters.borrow_mut();
    let Waiters {
        wake, by_handle, ..
    } = &mut *waiters;
    let mut found = false;
    for blocked in wake.iter() {
        let Some(entry) = by_handle.get_mut(blocked) else {
            continue;
        };
        let granted = entry.grant_to_undo.as_ref().is_some_and(|grant| {
            grant.at.0 == key.db as i32 && *grant.at.1 == *key.name && grant.owner.as_ref() == owner
        });
        if granted {
            (entry.answer, entry.grant_to_undo) = (Some(Answer::Null), None);
            found = true;
        }
    }
    found
}

/// Lets a client go before the event loop turns.
pub(crate) fn wake(state: &State, blocked: Blocked) {
    state.waiters.borrow_mut().wake.push_back(blocked);
    timers::at_end_of_turn(state);
}

/// Undoes a grant that nobody was told of.
pub(crate) fn give_back(state: &State, grant: UndeliveredGrant) {
    if state.primary.get() {
        let at = grant.at.clone();
        dirty::mark_queue(at.0, &at.1);
        let mut waiters = state.waiters.borrow_mut();
        waiters.undelivered.entry(at).or_default().push(grant);
    }
}

fn answer_waiter(
    state: &State,
    id: WaiterId,
    answer: Answer,
    grant_to_undo: Option<UndeliveredGrant>,
) {
    let mut waiters = state.waiters.borrow_mut();
    let Some(blocked) = waiters.handles.remove(&id) else {
        return;
    };
    if let Some(entry) = waiters.by_handle.get_mut(&blocked) {
        entry.answer = Some(answer);
        entry.grant_to_undo = grant_to_undo;
        waiters.wake.push_back(blocked);
    }
    drop(waiters);
    timers::at_end_of_turn(state);
}

/// Answers everybody who waits at the key with `error`.
pub(crate) fn refuse_all(state: &State, db: i32, name: &[u8], error: &Error) {
    let ids: Vec<WaiterId> = match state.queues.borrow().get(db as u32, name) {
        Some(queue) => queue.iter().map(|waiter| waiter.id).collect(),
        None => return,
    };
    for id in ids {
        refuse(state, id, error.clone());
    }
}

/// The key's slot has left this server.
pub(crate) fn send_away(state: &State, db: i32, name: &[u8]) {
    take_undelivered(state, db, name);
    let error = Error::Unblocked("the key's slot is not on this server any more, ask again");
    refuse_all(state, db, name, &error);
}

/// This server is no primary any more.
pub(crate) fn send_all_away(state: &State) {
    let keys: Vec<(u32, Name)> = {
        let queues = state.queues.borrow();
        queues
            .iter()
            .map(|(db, name, _)| (db, (**name).into()))
            .collect()
    };
    let error = Error::Unblocked("this server is not the primary any more, ask again");
    for (db, name) in keys {
        refuse_all(state, db as i32, &name, &error);
    }
    state.waiters.borrow_mut().undelivered.clear();
    state.held_back.borrow_mut().clear();
    state.restored.borrow_mut().clear();
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

/// Marks the keys with waiters whose first lease is over, and all of them when the grace ends.
pub(crate) fn mark_due(state: &State, now: Instant) {
    loop {
        let due = state.queues.borrow_mut().due(now);
        let Some(key) = due else { break };
        dirty::mark_queue(key.db as i32, &key.name);
    }
    if state.grace.is_newly_over(now) {
        dirty::mark_queues(state, None);
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
    if let Some(Entry {
        delivered: false,
        grant_to_undo: Some(grant),
        ..
    }) = entry
    {
        give_back(state, grant);
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
    let answer = {
        let mut waiters = state.waiters.borrow_mut();
        let Some(entry) = waiters.by_handle.get_mut(&blocked) else {
            return ctx.reply_null();
        };
        entry.delivered = true;
        entry.answer.clone()
    };
    match answer {
        Some(Answer::Token(token)) => ctx.reply_integer(token.get() as i64),
        Some(Answer::Error(error)) => ctx.reply_error(&error.to_string()),
        Some(Answer::Null) | None => ctx.reply_null(),
    }
}
