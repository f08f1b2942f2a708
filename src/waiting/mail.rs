//! Requests whose answer is a letter, and the clients that wait for letters.
//!
//! What a box is, and what a letter, is known to `mortise_core::mail`. Here a decided request becomes a
//! letter, a LOCK.MAIL that waits is let go when there is one, and boxes that nobody asks for go:
//! their requests leave, and grants that nobody was told of are given back.
//!
//! A box lives on time in which the server reads commands, see [`Post::listened`]: a stall, a pause or a long
//! script must not cost a client its box.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

use mortise_core::mail::{BoxId, Leaving, Letter, Outcome, Posted, Undo, Untold};
use mortise_core::{
    Decided, Instant, KeyId, Mail, Mode, OwnerRef, Request, Token, TokenClock, Verdict, Waiter,
    WaiterId,
};

use crate::error::Error;
use crate::ffi::{Blocked, Context};
use crate::state::{ROOM_KEPT, State, Swap};
use crate::time::clock;
use crate::turn::timers;
use crate::waiting::tellings::Tellings;
use crate::waiting::undelivered::{self, UndeliveredGrant};
use crate::waiting::waiters::{self, Answer};

/// How much later than planned a tick may be before the server counts as having read nothing meanwhile, in milliseconds.
const LATE: u64 = 200;
/// Letters that are told for so many times `lock.mail-timeout` and not forgotten: their box goes.
const UNFORGOTTEN: u64 = 10;

/// The boxes, and who waits for their letters.
#[derive(Debug, Default)]
pub(crate) struct Post {
    mail: RefCell<Mail>,
    readers: RefCell<Readers>,
    tellings: RefCell<Tellings>,
    /// Where the numbers of boxes and letters come from.
    numbers: RefCell<TokenClock>,
    /// How long the server has read no commands, in milliseconds.
    deaf: Cell<u64>,
    ticked: Cell<Instant>,
    /// Boxes that nobody has asked for in time are there.
    overdue: Cell<bool>,
}

/// A LOCK.MAIL that waits or is about to be answered.
#[derive(Debug)]
struct Reader {
    id: BoxId,
    call: Call,
    /// It is answered with letters, or with this.
    refusal: Option<Error>,
}

/// What a LOCK.MAIL asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// When it arrived, in microseconds of the boot-time clock.
    pub(crate) arrived: u64,
    /// How many letters it takes at most.
    pub(crate) count: usize,
}

#[derive(Debug, Default)]
struct Readers {
    by_handle: HashMap<Blocked, Reader>,
    waiting: HashMap<BoxId, (Blocked, Instant)>,
    limits: BTreeSet<(Instant, BoxId)>,
}

impl Post {
    /// The server has started: time counts from here on.
    pub(crate) fn on_start(&self, now: Instant) {
        self.ticked.set(now);
    }

    /// How many LOCK.MAILs wait.
    pub(crate) fn readers(&self) -> usize {
        self.readers.borrow().waiting.len()
    }

    /// Boxes, letters, and requests by mail.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let mail = self.mail.borrow();
        [mail.boxes(), mail.letters(), mail.requests()].map(|count| count as u64)
    }

    /// Boxes have gone, and not all of what was in them has left.
    pub(crate) fn boxes_leave(&self) -> bool {
        self.overdue.get() || self.mail.borrow().has_leaving()
    }

    /// When the first LOCK.MAIL that waits is answered, whatever there is.
    pub(crate) fn next_limit(&self) -> Option<Instant> {
        let readers = self.readers.borrow();
        readers.limits.first().map(|(limit, _)| *limit)
    }

    /// Now, less the time in which the server read no commands.
    fn listened(&self, now: Instant) -> Instant {
        // A command may come ahead of the tick that notes the time before it.
        let away = now.millis_since(self.ticked.get());
        let deaf = self.deaf.get() + if away > LATE { away } else { 0 };
        Instant::from_millis(now.as_millis().saturating_sub(deaf))
    }

    /// A number larger than every one before, over boxes and restarts, as tokens are.
    fn next_number(&self, state: &State) -> u64 {
        let last = Token::new(state.tokens.borrow().last());
        let number = self.numbers.borrow_mut().next(clock::wall(), last);
        number.map_or(0, Token::get)
    }
}

/// A box that the user who runs the command may use, whether it is there or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mailbox<'c> {
    name: &'c [u8],
    /// `None` if it is not there.
    pub(crate) id: Option<BoxId>,
}

/// The box `name`. It is not made yet: what the command is refused for must not leave one.
///
/// # Errors
/// [`Error::NotYourBox`].
pub(crate) fn find<'c>(ctx: &Context<'_>, name: &'c [u8]) -> Result<Mailbox<'c>, Error> {
    let mail = ctx.state().post.mail.borrow();
    let found = mail.find(name, &ctx.user_name());
    let id = found.map_err(|_| Error::NotYourBox)?;
    Ok(Mailbox { name, id })
}

impl Mailbox<'_> {
    /// The box, which is made if it is not there. Room for it has been checked.
    pub(crate) fn open(self, ctx: &Context<'_>, now: Instant) -> BoxId {
        self.id.unwrap_or_else(|| {
            let post = &ctx.state().post;
            let since = post.next_number(ctx.state());
            let mut mail = post.mail.borrow_mut();
            mail.make(self.name, &ctx.user_name(), since, post.listened(now))
        })
    }

    /// There is room for the box and for `requests` more.
    ///
    /// # Errors
    /// [`Error::MaxQueued`].
    pub(crate) fn check_room(self, state: &State, requests: u64) -> Result<(), Error> {
        let (max, there) = (state.max_queued.get(), state.post.mail.borrow().len());
        let more = requests + u64::from(self.id.is_none());
        if more > 0 && there as u64 + more > max {
            return Err(Error::MaxQueued(max));
        }
        Ok(())
    }

    /// There is room in the box for one more request.
    ///
    /// # Errors
    /// [`Error::BoxFull`].
    fn check_share(self, state: &State) -> Result<(), Error> {
        let most = (state.max_queued.get() / 10).max(1);
        let there = self.id.map_or(0, |id| state.post.mail.borrow().box_len(id));
        if there as u64 >= most {
            return Err(Error::BoxFull(most));
        }
        Ok(())
    }
}

/// A request of that owner for that mode waits at the key by mail: it is made again.
pub(crate) fn queued_already(
    state: &State,
    key: &KeyId,
    request: &Request<'_>,
) -> Option<WaiterId> {
    let (queues, mail) = (state.queues.borrow(), state.post.mail.borrow());
    let requests = queues.requests_of(key.db, &key.name, request.owner);
    requests.into_iter().find(|id| {
        let same = queues
            .waiter(*id)
            .is_some_and(|(_, waiter)| waiter.mode == request.mode);
        same && mail.is_expected(*id)
    })
}

/// There is room for one more request in the box.
///
/// # Errors
/// [`Error::MaxQueued`], [`Error::BoxFull`].
pub(crate) fn check_room(state: &State, mailbox: Mailbox<'_>) -> Result<(), Error> {
    mailbox.check_room(state, 1)?;
    mailbox.check_share(state)
}

/// There is room in the box for a request that waits already, perhaps with another box. It counts on the server.
///
/// # Errors
/// [`Error::MaxQueued`], [`Error::BoxFull`].
pub(crate) fn check_move(
    state: &State,
    waiter: WaiterId,
    mailbox: Mailbox<'_>,
) -> Result<(), Error> {
    mailbox.check_room(state, 0)?;
    let from = state.post.mail.borrow().box_of(waiter);
    match from == mailbox.id {
        true => Ok(()),
        false => mailbox.check_share(state),
    }
}

/// The answer of `waiter` goes to the box.
pub(crate) fn expect(state: &State, waiter: WaiterId, id: BoxId) {
    state.post.mail.borrow_mut().expect(waiter, id);
}

/// A request is made again: what refused or denied it before and was told to nobody is taken out.
pub(crate) fn withdraw_refusal(state: &State, db: i32, name: &[u8], request: &Request<'_>) {
    let mut mail = state.post.mail.borrow_mut();
    if mail.letters() > 0 {
        let key = KeyId {
            db: db as u32,
            name: name.into(),
        };
        mail.withdraw_refusal(&key, request.owner, request.mode);
    }
}

/// Takes out the letters for requests of `owner` at the key. True if there was one.
pub(crate) fn withdraw(state: &State, key: &KeyId, owner: OwnerRef<'_>) -> bool {
    state.post.mail.borrow_mut().withdraw(key, owner)
}

/// `waiter` has left its queue, and nobody is to be told. True if it waited by mail.
pub(crate) fn forget(state: &State, waiter: WaiterId) -> bool {
    state.post.mail.borrow_mut().forget_request(waiter)
}

/// A settle has decided a waiter of the key. False if it does not wait by mail.
pub(crate) fn decide(state: &State, key: &KeyId, decided: &Decided, now: Instant) -> bool {
    let waiter = &decided.waiter;
    let outcome = match decided.verdict {
        Verdict::Granted {
            grant,
            stake,
            before,
            ..
        } => Outcome::Granted {
            token: grant.token(),
            lease: waiter.lease,
            at: now,
            undo: Undo {
                granted: stake.touched,
                token: stake.token,
                before: before.map(Box::new),
            },
        },
        Verdict::UpgradeLost => Outcome::Denied,
        Verdict::Refused(error) => refused(&Error::of(error, waiter.fence)),
    };
    post(state, key, waiter, outcome)
}

/// A waiter that has left the queue is answered. False if it does not wait by mail.
pub(crate) fn answer(state: &State, key: &KeyId, waiter: &Waiter, answer: &Answer) -> bool {
    let outcome = match answer {
        Answer::Error(error) => refused(error),
        Answer::Null | Answer::Token(_) => Outcome::Denied,
    };
    post(state, key, waiter, outcome)
}

fn refused(error: &Error) -> Outcome {
    Outcome::Refused(error.to_string().into())
}

fn post(state: &State, key: &KeyId, waiter: &Waiter, outcome: Outcome) -> bool {
    let mut mail = state.post.mail.borrow_mut();
    if !mail.is_expected(waiter.id) {
        return false;
    }
    let letter = Letter {
        key: key.clone(),
        owner: waiter.owner.clone(),
        mode: waiter.mode,
        outcome,
    };
    let posted = mail.post(waiter.id, state.post.next_number(state), letter);
    drop(mail);
    match posted {
        Posted::In(id) => let_reader_go(state, id, None),
        Posted::Returned(Some(untold)) => give_back(state, untold),
        Posted::Returned(None) | Posted::NotByMail(_) => {}
    }
    true
}

fn give_back(state: &State, untold: Untold) {
    let Untold { key, owner, undo } = untold;
    let grant = UndeliveredGrant {
        at: (key.db as i32, (*key.name).into()),
        owner,
        granted: undo.granted,
        token: undo.token,
        before: undo.before.map(|before| *before),
        told: false,
    };
    undelivered::give_back(state, grant);
}

/// A grant stands because another one has touched its hold since. If nobody was told of that one either, undoing it is
/// to undo both.
pub(crate) fn hand_on(state: &State, grant: &UndeliveredGrant) {
    let key = KeyId {
        db: grant.at.0 as u32,
        name: (*grant.at.1).into(),
    };
    let undo = Undo {
        granted: grant.granted,
        token: grant.token,
        before: grant.before.map(Box::new),
    };
    let mut mail = state.post.mail.borrow_mut();
    mail.hand_on(&key, grant.owner.as_ref(), &undo);
}

/// A LOCK.MAIL has come for the box, whose letters up to `after` are forgotten. One that waits for it ends.
pub(crate) fn ask(state: &State, id: BoxId, after: Option<u64>, now: Instant) {
    let newer = Error::Unblocked("a newer LOCK.MAIL waits for this box");
    let_reader_go(state, id, Some(newer));
    let mut mail = state.post.mail.borrow_mut();
    mail.ask(id, after, state.post.listened(now));
}

/// The box has letters behind `after`.
pub(crate) fn has_letters_after(state: &State, id: BoxId, after: Option<u64>) -> bool {
    state.post.mail.borrow().has_letters_after(id, after)
}

/// A LOCK.MAIL waits for the box already.
pub(crate) fn is_read(state: &State, id: BoxId) -> bool {
    state.post.readers.borrow().waiting.contains_key(&id)
}

/// Blocks the client until the box has letters, but no longer than to `limit`.
pub(crate) fn wait(ctx: &Context<'_>, id: BoxId, call: Call, limit: Instant) {
    let Some(blocked) = ctx.block() else {
        return reply(ctx, id, call);
    };
    let mut readers = ctx.state().post.readers.borrow_mut();
    let refusal = None;
    readers
        .by_handle
        .insert(blocked, Reader { id, call, refusal });
    readers.waiting.insert(id, (blocked, limit));
    readers.limits.insert((limit, id));
    drop(readers);
    timers::arm_due(ctx, ctx.state());
}

/// Replies `[since, waited, letters]`. The letters are told from now on.
pub(crate) fn reply(ctx: &Context<'_>, id: BoxId, call: Call) {
    let post = &ctx.state().post;
    let now = clock::now_micros();
    let listened = post.listened(Instant::from_millis(now / 1_000));
    let mut mail = post.mail.borrow_mut();
    let before = mail.told(id);
    let letters = mail.tell(id, call.count, listened);
    let is_told = letters.len() > 0;
    ctx.reply_array(3);
    ctx.reply_integer(id.0 as i64);
    ctx.reply_integer((now.saturating_sub(call.arrived) / 1_000) as i64);
    ctx.reply_array(letters.len());
    for (number, letter) in letters {
        reply_letter(ctx, number, letter, now);
    }
    // Whatever runs in a script or a transaction has another client's id, or none.
    if is_told && !ctx.denies_blocking() && undelivered::watch(ctx, ctx.state()) {
        let mut tellings = post.tellings.borrow_mut();
        tellings.add(&mail, id, before, ctx.client_id());
    }
}

/// The event loop slept: who was told letters has them.
pub(crate) fn on_slept(state: &State) {
    state.post.tellings.borrow_mut().on_slept();
}

/// `client` was told letters since the event loop slept.
pub(crate) fn was_told(state: &State, client: u64) -> bool {
    state.post.tellings.borrow().knows(client)
}

/// `client` is being closed, and has not read what it was told since the event loop slept.
pub(crate) fn on_closed(state: &State, client: u64) {
    let mut tellings = state.post.tellings.borrow_mut();
    tellings.on_closed(&mut state.post.mail.borrow_mut(), client);
}

fn reply_letter(ctx: &Context<'_>, number: u64, letter: &Letter, now: u64) {
    let (fields, result) = match &letter.outcome {
        Outcome::Granted { .. } => (9, c"granted"),
        Outcome::Denied => (6, c"denied"),
        Outcome::Refused(_) => (7, c"refused"),
    };
    ctx.reply_map(fields);
    ctx.reply_text(c"number");
    ctx.reply_integer(number as i64);
    ctx.reply_text(c"key");
    ctx.reply_bytes(&letter.key.name);
    ctx.reply_text(c"db");
    ctx.reply_integer(i64::from(letter.key.db));
    ctx.reply_text(c"owner");
    ctx.reply_bytes(&letter.owner.text());
    ctx.reply_text(c"mode");
    ctx.reply_text(match letter.mode {
        Mode::Read => c"read",
        Mode::Write => c"write",
    });
    ctx.reply_text(c"result");
    ctx.reply_text(result);
    match &letter.outcome {
        Outcome::Granted {
            token, lease, at, ..
        } => {
            // The lease counts from the millisecond in which it was granted, so this is never too little.
            let age = now.div_ceil(1_000).saturating_sub(at.as_millis());
            for (field, value) in [
                (c"token", token.get()),
                (c"lease", lease.as_millis()),
                (c"age", age),
            ] {
                ctx.reply_text(field);
                ctx.reply_integer(value as i64);
            }
        }
        Outcome::Denied => {}
        Outcome::Refused(error) => {
            ctx.reply_text(c"error");
            ctx.reply_bytes(error.as_bytes());
        }
    }
}

/// The LOCK.MAIL that waits for the box is answered: with letters, or with `refusal`.
fn let_reader_go(state: &State, id: BoxId, refusal: Option<Error>) {
    let mut readers = state.post.readers.borrow_mut();
    let Some((blocked, limit)) = readers.waiting.remove(&id) else {
        return;
    };
    readers.limits.remove(&(limit, id));
    if let Some(reader) = readers.by_handle.get_mut(&blocked) {
        reader.refusal = refusal;
    }
    drop(readers);
    waiters::wake(state, blocked);
}

/// Answers one LOCK.MAIL whose time is up. False if there is none.
pub(crate) fn time_one_out(state: &State, now: Instant) -> bool {
    let Some((limit, id)) = state.post.readers.borrow().limits.first().copied() else {
        return false;
    };
    if limit > now {
        return false;
    }
    let_reader_go(state, id, None);
    true
}

/// `blocked` is a LOCK.MAIL.
pub(crate) fn knows(state: &State, blocked: Blocked) -> bool {
    state.post.readers.borrow().by_handle.contains_key(&blocked)
}

/// The server asks for the reply of a LOCK.MAIL that was let go.
pub(crate) fn on_reply(ctx: &Context<'_>, blocked: Blocked) {
    let readers = ctx.state().post.readers.borrow();
    let Some(Reader { id, call, refusal }) = readers.by_handle.get(&blocked) else {
        return ctx.reply_null();
    };
    match refusal {
        Some(error) => ctx.reply_error(&error.to_string()),
        None => reply(ctx, *id, *call),
    }
}

/// CLIENT UNBLOCK, or the client is gone. What was decided already stays.
pub(crate) fn leave(state: &State, blocked: Blocked) {
    let readers = state.post.readers.borrow();
    let id = readers.by_handle.get(&blocked).map(|reader| reader.id);
    let waits = id.filter(|id| {
        let waiting = readers.waiting.get(id);
        waiting.is_some_and(|(handle, _)| *handle == blocked)
    });
    drop(readers);
    if let Some(id) = waits {
        let_reader_go(state, id, None);
    }
}

/// The server has done with the handle.
pub(crate) fn on_freed(state: &State, blocked: Blocked) {
    let mut readers = state.post.readers.borrow_mut();
    readers.by_handle.remove(&blocked);
    if readers.by_handle.is_empty() {
        readers.by_handle.shrink_to(ROOM_KEPT);
        readers.waiting.shrink_to(ROOM_KEPT);
    }
}

/// Two databases have changed places, and with them the locks of which letters tell.
pub(crate) fn swap(state: &State, Swap(one, other): Swap) {
    let number = state.post.next_number(state);
    let mut mail = state.post.mail.borrow_mut();
    mail.swap(one as u32, other as u32, number);
}

/// Every 100 ms: boxes that nobody asks for go, and owners that left long ago are forgotten. `paused`: the server may
/// have held commands back.
pub(crate) fn on_tick(state: &State, now: Instant, paused: bool) {
    let post = &state.post;
    let away = now.millis_since(post.ticked.replace(now));
    if paused || away > LATE {
        post.deaf.set(post.deaf.get() + away);
    }
    post.overdue.set(first_overdue(state, now).is_some());
    state.left.borrow_mut().forget_over(now, FORGOTTEN_A_TICK);
}

/// How many owners that have left are forgotten in one tick: a tenth of a millisecond's work.
const FORGOTTEN_A_TICK: usize = 1_000;

/// A box that nobody has asked for in time, or that has not forgotten what it was told.
fn first_overdue(state: &State, now: Instant) -> Option<BoxId> {
    let listened = state.post.listened(now).as_millis();
    let timeout = state.mail_timeout.get();
    let before = |ms: u64| Instant::from_millis(listened.saturating_sub(ms));
    let (asked, told) = (before(timeout), before(timeout * UNFORGOTTEN));
    state.post.mail.borrow().overdue(asked, told)
}

/// Closes the next box that is overdue. False if there is none.
pub(crate) fn close_one_overdue(state: &State) -> bool {
    let post = &state.post;
    if !post.overdue.get() {
        return false;
    }
    let overdue = first_overdue(state, clock::now());
    if let Some(id) = overdue {
        let_reader_go(state, id, None);
        post.mail.borrow_mut().close(id);
    }
    post.overdue.set(overdue.is_some());
    overdue.is_some()
}

/// Sees to the next piece of the boxes that have gone. False if there is none.
pub(crate) fn let_one_leave(state: &State) -> bool {
    let leaving = state.post.mail.borrow_mut().next_leaving();
    match leaving {
        None => return false,
        Some(Leaving::Letter) => {}
        Some(Leaving::Grant(untold)) => give_back(state, untold),
        Some(Leaving::Request(id)) => waiters::withdraw(state, id),
    }
    true
}

/// This server is no primary any more: its boxes go.
pub(crate) fn close_all(state: &State) {
    let readers = state.post.readers.borrow();
    let waiting: Vec<BoxId> = readers.waiting.keys().copied().collect();
    drop(readers);
    for id in waiting {
        let error = Error::Unblocked("this server is not the primary any more, ask again");
        let_reader_go(state, id, Some(error));
    }
    state.post.mail.borrow_mut().close_all();
    timers::at_end_of_turn(state);
}
