//! The boxes of this server: who may use them, how much fits in, the time on which they live, how they are closed, and what a LOCK.MAIL
//! gets of them.
//!
//! `mortise_core::mail` knows boxes and letters. A box without a LOCK.MAIL is closed: its requests leave, and grants that were not
//! delivered are undone. It lives on time in which the server reads commands ([`Boxes::listened`]): a stall, a pause or a long script must
//! not cost a client its box.

use std::cell::{Cell, LazyCell, RefCell};

use mortise_core::mail::{self, BoxId, Leaving, Letter, Numbered, Outcome, Posted};
use mortise_core::{Instant, Mail, Mode, Token, TokenClock, WaiterId};

use crate::config;
use crate::error::Error;
use crate::ffi::{Context, MainThread};
use crate::keys::tokens;
use crate::time::clock;
use crate::waiting::clients::{self, MailCall};
use crate::waiting::queues::withdraw;
use crate::waiting::{self, undelivered};
use crate::work::queue::{self as work, Work};

/// The module closes a box whose delivered letters nobody has deleted for this many times `lock.mail-timeout`.
const UNFORGOTTEN: u64 = 10;
/// A box lives for so long, in milliseconds, after the connection over which its newest LOCK.MAIL waited was closed.
const WITHOUT_READER: u64 = 1_000;
/// How much later than planned a tick may be before the server counts as having read nothing meanwhile, in milliseconds.
const LATE: u64 = 200;
/// How many owners that have left one tick forgets, in a tenth of a millisecond.
const FORGOTTEN_A_TICK: usize = 1_000;

static BOXES: MainThread<LazyCell<Boxes>> = MainThread::new(LazyCell::new(Boxes::default));

/// Every box.
pub(crate) fn boxes(ctx: &Context<'_>) -> &'static Boxes {
    BOXES.get(ctx)
}

/// Every box, and the time on which they live.
#[derive(Debug, Default)]
pub(crate) struct Boxes {
    pub(crate) mail: RefCell<Mail>,
    /// Where the numbers of boxes and letters come from.
    numbers: RefCell<TokenClock>,
    /// How long the server has read no commands, in milliseconds.
    not_reading: Cell<u64>,
    ticked: Cell<Instant>,
}

impl Boxes {
    /// The server has started: time counts from here on.
    pub(crate) fn on_start(&self, now: Instant) {
        self.ticked.set(now);
    }

    /// Now, less the time in which the server read no commands.
    pub(super) fn listened(&self, now: Instant) -> Instant {
        // A command may come ahead of the tick that notes the time before it.
        let away = now.millis_since(self.ticked.get());
        let not_reading = self.not_reading.get() + if away > LATE { away } else { 0 };
        Instant::from_millis(now.as_millis().saturating_sub(not_reading))
    }

    /// A number larger than every one before, over boxes and restarts, as tokens are.
    fn next_number(&self, ctx: &Context<'_>) -> u64 {
        let last = Token::new(tokens::last(ctx));
        let number = self.numbers.borrow_mut().next(clock::wall(), last);
        number.map_or(0, Token::get)
    }

    /// Every 100 ms: finds boxes without a LOCK.MAIL, and forgets owners that left long ago. `paused`: the server may have held commands
    /// back.
    pub(crate) fn on_tick(&self, ctx: &Context<'_>, now: Instant, paused: bool) {
        let away = now.millis_since(self.ticked.replace(now));
        if paused || away > LATE {
            self.not_reading.set(self.not_reading.get() + away);
        }
        if self.mail.borrow().overdue(self.listened(now)).is_some() {
            work::push(ctx, Work::CloseBoxes);
        }
        let mut left = waiting::left(ctx).borrow_mut();
        left.forget_over(now, FORGOTTEN_A_TICK);
    }

    /// Until when the next LOCK.MAIL has to name a box, and until when delivered letters have to be deleted.
    fn limits(&self, now: Instant) -> (Instant, Instant) {
        let (listened, timeout) = (self.listened(now), config::MAIL_TIMEOUT.get());
        let unread_until = listened.after(timeout * UNFORGOTTEN);
        (listened.after(timeout), unread_until)
    }

    /// Closes the next box that is overdue, or empties the next piece of those that were closed. False if there is none.
    pub(crate) fn close_some(&self, ctx: &Context<'_>) -> bool {
        let overdue = self.mail.borrow().overdue(self.listened(clock::now()));
        if let Some(id) = overdue {
            clients::answer_reader(ctx, id, None);
            self.mail.borrow_mut().close(id);
            return true;
        }
        let leaving = self.mail.borrow_mut().next_leaving();
        match leaving {
            None => return false,
            Some(Leaving::Letter) => {}
            Some(Leaving::Undelivered(id)) => undelivered::not_delivered(ctx, id),
            Some(Leaving::Request(id)) => withdraw(ctx, id),
        }
        true
    }

    /// Drops all boxes, because this server is no longer a primary.
    pub(crate) fn close_all(&self, ctx: &Context<'_>) {
        self.mail.borrow_mut().close_all();
        work::push(ctx, Work::CloseBoxes);
    }

    /// Puts the answer to a request by mail into its box. A LOCK.MAIL that waits for it gets it at the end of the turn.
    pub(super) fn post(&self, ctx: &Context<'_>, letter: Letter) {
        let (waiter, number) = (letter.waiter, self.next_number(ctx));
        let homes = work::homes(ctx).borrow();
        let posted = self.mail.borrow_mut().post(waiter, number, letter, &homes);
        drop(homes);
        match posted {
            Posted::In(id) if waiting::clients(ctx).borrow().is_read(id) => {
                work::push(ctx, Work::AnswerMail(id));
            }
            Posted::Returned => undelivered::not_delivered(ctx, waiter),
            Posted::In(_) | Posted::NotByMail => {}
        }
    }
}

/// A box that the user who runs the command may use, whether it is there or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedBox<'c> {
    name: &'c [u8],
    /// `None` if it is not there.
    pub(crate) id: Option<BoxId>,
}

impl<'c> NamedBox<'c> {
    /// The box `name`. It is not created yet, because a refused command must not leave one.
    ///
    /// # Errors
    /// [`Error::NOT_YOUR_BOX`].
    pub(crate) fn find(ctx: &Context<'_>, name: &'c [u8]) -> Result<Self, Error> {
        let mail = boxes(ctx).mail.borrow();
        let found = mail.find(name, &ctx.user_name());
        let id = found.map_err(|_| Error::NOT_YOUR_BOX)?;
        Ok(Self { name, id })
    }

    /// The box, which is made if it is not there. Room for it has been checked.
    pub(crate) fn open(self, ctx: &Context<'_>, now: Instant) -> BoxId {
        self.id.unwrap_or_else(|| {
            let boxes = boxes(ctx);
            let since = boxes.next_number(ctx);
            let mut mail = boxes.mail.borrow_mut();
            let (until, _) = boxes.limits(now);
            mail.make(self.name, &ctx.user_name(), since, until)
        })
    }

    /// Makes the box of a request that does not wait, and so needs none, if there is room for one.
    pub(crate) fn open_if_room(self, ctx: &Context<'_>) {
        if self.check(ctx, 0, None).is_ok() {
            self.open(ctx, clock::now());
        }
    }

    /// Checks that there is room for the box, and for a request that counts as `requests`. `repeats`: it waits already, perhaps with another
    /// box, and is counted.
    ///
    /// # Errors
    /// `MAXWAITERS`.
    pub(crate) fn check(
        self,
        ctx: &Context<'_>,
        requests: u64,
        repeats: Option<WaiterId>,
    ) -> Result<(), Error> {
        let (mail, max) = (boxes(ctx).mail.borrow(), config::MAX_QUEUED.get());
        let is_new = if repeats.is_none() { requests } else { 0 };
        let more = is_new + u64::from(self.id.is_none());
        if more > 0 && mail.len() as u64 + more > max {
            return Err(Error::new(format!(
                "MAXWAITERS {max} requests, letters and boxes are on this server already (lock.max-queued)"
            )));
        }
        let stays = repeats.is_some_and(|id| mail.box_of(id) == self.id);
        let (there, share) = (self.id.map_or(0, |id| mail.box_len(id)), (max / 10).max(1));
        if requests > 0 && !stays && there as u64 + requests > share {
            return Err(Error::new(format!(
                "MAXWAITERS {share} requests and letters are in this box already (a tenth of lock.max-queued)"
            )));
        }
        Ok(())
    }
}

/// A LOCK.MAIL has arrived for the box: forgets its letters up to `after`, and ends the LOCK.MAIL that waits for it.
pub(crate) fn ask(ctx: &Context<'_>, id: BoxId, after: Option<u64>, now: Instant) {
    clients::answer_reader(ctx, id, Some(&Error::NEWER_MAIL));
    let boxes = waiting::boxes(ctx);
    let (until, unread_until) = boxes.limits(now);
    let mut mail = boxes.mail.borrow_mut();
    for waiter in mail.ask(id, after, until, unread_until) {
        undelivered::delivered(ctx, waiter);
    }
}

/// Blocks the client until the box has letters, but not beyond `limit`.
pub(crate) fn wait(ctx: &Context<'_>, call: MailCall, limit: Instant) {
    let Some(blocked) = ctx.block() else {
        return reply(ctx, call);
    };
    let mut clients = waiting::clients(ctx).borrow_mut();
    clients.add_reader(blocked, call, limit);
    drop(clients);
    waiting::arm(ctx);
}

/// Closes the box of a LOCK.MAIL that waited soon, unless it is asked for again, if its connection is closed and no other LOCK.MAIL waits.
pub(super) fn on_reader_freed(ctx: &Context<'_>, call: MailCall) {
    if ctx.is_connected(call.client) || waiting::clients(ctx).borrow().is_read(call.id) {
        return;
    }
    let boxes = waiting::boxes(ctx);
    let until = boxes.listened(clock::now()).after(WITHOUT_READER);
    boxes.mail.borrow_mut().set_lost(call.id, until);
}

/// Answers the LOCK.MAIL that waits for the box, if there are letters.
pub(crate) fn answer(ctx: &Context<'_>, id: BoxId) {
    let mail = waiting::boxes(ctx).mail.borrow();
    let any = mail.has_letters_after(id, None);
    drop(mail);
    if any {
        clients::answer_reader(ctx, id, None);
    }
}

/// Replies `[since, waited, letters]`. The letters count as delivered from now on.
pub(crate) fn reply(ctx: &Context<'_>, call: MailCall) {
    let (boxes, now) = (waiting::boxes(ctx), clock::now_micros());
    let (_, unread_until) = boxes.limits(Instant::from_millis(now / 1_000));
    let mut mail = boxes.mail.borrow_mut();
    let homes = work::homes(ctx).borrow();
    let letters = mail.deliver(call.id, call.count, unread_until, &homes);
    ctx.reply_array(3);
    ctx.reply_integer(call.id.0 as i64);
    ctx.reply_integer((now.saturating_sub(call.arrived) / 1_000) as i64);
    ctx.reply_array(letters.len());
    for letter in letters {
        undelivered::delivered(ctx, letter.letter.waiter);
        reply_letter(ctx, letter, now);
    }
}

fn reply_letter(ctx: &Context<'_>, numbered: Numbered<'_>, now: u64) {
    let Numbered { number, db, letter } = numbered;
    let (fields, result) = match &letter.outcome {
        Outcome::Granted { .. } => (9, c"granted"),
        Outcome::Denied => (6, c"denied"),
        Outcome::Refused(_) => (7, c"refused"),
    };
    ctx.reply_map(fields + usize::from(letter.keys.several().is_some()));
    ctx.reply_field(c"number", number as i64);
    ctx.reply_text(c"key");
    ctx.reply_bytes(&letter.keys.first().name);
    if let Some(keys) = letter.keys.several() {
        ctx.reply_text(c"keys");
        ctx.reply_array(keys.len());
        for key in keys {
            ctx.reply_bytes(&key.name);
        }
    }
    ctx.reply_field(c"db", i64::from(db.0));
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
        Outcome::Granted { token, lease, at } => {
            ctx.reply_field(c"token", token.get() as i64);
            ctx.reply_field(c"lease", lease.as_millis() as i64);
            ctx.reply_field(c"age", mail::age(*at, now) as i64);
        }
        Outcome::Denied => {}
        Outcome::Refused(error) => {
            ctx.reply_text(c"error");
            ctx.reply_bytes(error.as_bytes());
        }
    }
}
