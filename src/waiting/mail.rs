//! Requests whose answer is a letter.
//!
//! `mortise_core::mail` knows boxes and letters. Here a decided request becomes a letter, a waiting LOCK.MAIL gets its reply when there is
//! one, and boxes without a LOCK.MAIL are closed: their requests leave, and grants that were not delivered are taken back.

use mortise_core::mail::{BoxId, BoxLimits, Leaving, Letter, Posted};
use mortise_core::{Instant, WaiterId};

use crate::config;
use crate::error::Error;
use crate::ffi::{Context, Swap};
use crate::time::{alarms, clock};
use crate::waiting::left;
use crate::waiting::post::Post;
use crate::waiting::queue;
use crate::waiting::readers;
use crate::waiting::state::{self, Waiting};
use crate::waiting::undelivered;

/// The module closes a box whose delivered letters nobody has deleted for this many times `lock.mail-timeout`.
const UNFORGOTTEN: u64 = 10;
/// A box lives for so long, in milliseconds, after the connection over which its newest LOCK.MAIL waited was closed.
const WITHOUT_READER: u64 = 1_000;

/// A box that the user who runs the command may use, whether it is there or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mailbox<'c> {
    name: &'c [u8],
    /// `None` if it is not there.
    pub(crate) id: Option<BoxId>,
}

/// The boxes of this server.
pub(crate) fn boxes(ctx: &Context<'_>) -> &'static Post {
    &state::get(ctx).post
}

/// The box `name`. It is not created yet, because a refused command must not leave one.
///
/// # Errors
/// [`Error::NotYourBox`].
pub(crate) fn find<'c>(ctx: &Context<'_>, name: &'c [u8]) -> Result<Mailbox<'c>, Error> {
    let mail = state::get(ctx).post.mail.borrow();
    let found = mail.find(name, &ctx.user_name());
    let id = found.map_err(|_| Error::NotYourBox)?;
    Ok(Mailbox { name, id })
}

impl Mailbox<'_> {
    /// The box, which is made if it is not there. Room for it has been checked.
    pub(crate) fn open(self, ctx: &Context<'_>, now: Instant) -> BoxId {
        self.id.unwrap_or_else(|| {
            let post = &state::get(ctx).post;
            let since = post.next_number(ctx);
            let mut mail = post.mail.borrow_mut();
            mail.make(self.name, &ctx.user_name(), since, post.listened(now))
        })
    }

    /// The same for a request that does not wait, and so needs no box: only if there is room for one.
    pub(crate) fn open_if_room(self, ctx: &Context<'_>) {
        if self.check_room(ctx, 0).is_ok() {
            self.open(ctx, clock::now());
        }
    }

    /// Checks that there is room for the box and for `requests` more.
    ///
    /// # Errors
    /// [`Error::MaxQueued`].
    pub(crate) fn check_room(self, ctx: &Context<'_>, requests: u64) -> Result<(), Error> {
        let (max, there) = (
            config::max_queued(ctx),
            state::get(ctx).post.mail.borrow().len(),
        );
        let more = requests + u64::from(self.id.is_none());
        if more > 0 && there as u64 + more > max {
            return Err(Error::MaxQueued(max));
        }
        Ok(())
    }

    /// Checks that the box has room for so many more requests.
    ///
    /// # Errors
    /// [`Error::BoxFull`].
    fn check_share(self, ctx: &Context<'_>, requests: u64) -> Result<(), Error> {
        let most = (config::max_queued(ctx) / 10).max(1);
        let there = self
            .id
            .map_or(0, |id| state::get(ctx).post.mail.borrow().box_len(id));
        if there as u64 + requests > most {
            return Err(Error::BoxFull(most));
        }
        Ok(())
    }
}

/// Checks that there is room for so many more requests in the box. A request for several keys counts once for each.
///
/// # Errors
/// [`Error::MaxQueued`], [`Error::BoxFull`].
pub(crate) fn check_room(
    ctx: &Context<'_>,
    mailbox: Mailbox<'_>,
    requests: u64,
) -> Result<(), Error> {
    mailbox.check_room(ctx, requests)?;
    mailbox.check_share(ctx, requests)
}

/// Checks that the box has room for a request that waits already, perhaps with another box. The server's total includes it already.
/// `requests`: as so many.
///
/// # Errors
/// [`Error::MaxQueued`], [`Error::BoxFull`].
pub(crate) fn check_move(
    ctx: &Context<'_>,
    waiter: WaiterId,
    mailbox: Mailbox<'_>,
    requests: u64,
) -> Result<(), Error> {
    mailbox.check_room(ctx, 0)?;
    let from = state::get(ctx).post.mail.borrow().box_of(waiter);
    match from == mailbox.id {
        true => Ok(()),
        false => mailbox.check_share(ctx, requests),
    }
}

/// The answer of `waiter` goes to the box.
pub(crate) fn expect(waiting: &Waiting, waiter: WaiterId, id: BoxId) {
    waiting.post.mail.borrow_mut().expect(waiter, id);
}

/// The same for a waiter that requests so many keys.
pub(crate) fn expect_several(waiting: &Waiting, waiter: WaiterId, id: BoxId, keys: usize) {
    let mut mail = waiting.post.mail.borrow_mut();
    mail.expect_several(waiter, id, keys);
}

/// `waiter` waits by mail.
pub(crate) fn is_expected(waiting: &Waiting, waiter: WaiterId) -> bool {
    waiting.post.mail.borrow().is_expected(waiter)
}

/// `waiter` has left its queue, without a letter. True if it waited by mail.
pub(crate) fn forget(waiting: &Waiting, waiter: WaiterId) -> bool {
    waiting.post.mail.borrow_mut().forget_request(waiter)
}

/// Puts the answer to a request by mail into its box.
pub(super) fn post(ctx: &Context<'_>, letter: Letter) {
    let (waiter, post) = (letter.waiter, &state::get(ctx).post);
    let number = post.next_number(ctx);
    let posted = post.mail.borrow_mut().post(waiter, number, letter);
    match posted {
        Posted::In(id) => readers::on_letter(ctx, id),
        Posted::Returned => undelivered::not_delivered(ctx, waiter),
        Posted::NotByMail => {}
    }
}

/// Two databases have changed places, and with them the locks of letters.
pub(crate) fn swap(waiting: &Waiting, Swap(one, other): Swap) {
    let mut mail = waiting.post.mail.borrow_mut();
    mail.swap(one, other);
}

/// Every 100 ms: closes boxes without a LOCK.MAIL, and forgets owners that left long ago. `paused`: the server may
/// have held commands back.
pub(crate) fn on_tick(ctx: &Context<'_>, now: Instant, paused: bool) {
    let post = &state::get(ctx).post;
    post.on_tick(now, paused);
    post.overdue.set(first_overdue(ctx, now).is_some());
    left::all(ctx)
        .borrow_mut()
        .forget_over(now, FORGOTTEN_A_TICK);
}

/// How many owners that have left one tick forgets, in a tenth of a millisecond.
const FORGOTTEN_A_TICK: usize = 1_000;

/// A box without a LOCK.MAIL in time, whose reader was lost, or whose delivered letters were not deleted.
fn first_overdue(ctx: &Context<'_>, now: Instant) -> Option<BoxId> {
    let post = &state::get(ctx).post;
    let timeout = config::mail_timeout(ctx);
    let limits = BoxLimits {
        unasked: timeout,
        lost: timeout.min(WITHOUT_READER),
        delivered: timeout * UNFORGOTTEN,
    };
    post.mail.borrow().overdue(limits, post.listened(now))
}

/// Closes the next box that is overdue. False if there is none.
pub(crate) fn close_one_overdue(ctx: &Context<'_>) -> bool {
    let post = &state::get(ctx).post;
    if !post.overdue.get() {
        return false;
    }
    let overdue = first_overdue(ctx, clock::now());
    if let Some(id) = overdue {
        readers::end_call(ctx, id, None);
        post.mail.borrow_mut().close(id);
    }
    post.overdue.set(overdue.is_some());
    overdue.is_some()
}

/// Empties the next piece of the boxes that were closed. False if there is none.
pub(crate) fn let_one_leave(ctx: &Context<'_>) -> bool {
    let leaving = state::get(ctx).post.mail.borrow_mut().next_leaving();
    match leaving {
        None => return false,
        Some(Leaving::Letter) => {}
        Some(Leaving::Undelivered(id)) => undelivered::not_delivered(ctx, id),
        Some(Leaving::Request(id)) => queue::withdraw(ctx, id),
    }
    true
}

/// This server is no longer a primary: drops its boxes. The server itself has answered the clients that waited for letters.
pub(crate) fn close_all(ctx: &Context<'_>) {
    state::get(ctx).post.mail.borrow_mut().close_all();
    alarms::at_end_of_turn(ctx);
}
