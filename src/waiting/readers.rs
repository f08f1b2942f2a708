//! LOCK.MAILs that wait for the letters of a box.

use mortise_core::mail::{self, BoxId, Numbered, Outcome};
use mortise_core::{Instant, Mode};

use crate::error::Error;
use crate::ffi::{BlockedId, Context};
use crate::time::clock;
use crate::waiting::clients::{AwaitedLetters, MailCall};
use crate::waiting::state::{self, Waiting};
use crate::waiting::undelivered;
use crate::work::queue as work;

/// A LOCK.MAIL has arrived for the box: forgets its letters up to `after`, and ends the LOCK.MAIL that waits for it.
pub(crate) fn ask(ctx: &Context<'_>, id: BoxId, after: Option<u64>, now: Instant) {
    let newer = Error::Unblocked("a newer LOCK.MAIL waits for this box");
    end_call(ctx, id, Some(newer));
    let post = &state::get(ctx).post;
    let mut mail = post.mail.borrow_mut();
    for waiter in mail.ask(id, after, post.listened(now)) {
        undelivered::delivered(ctx, waiter);
    }
}

/// How many LOCK.MAILs wait.
pub(crate) fn len(waiting: &Waiting) -> usize {
    waiting.readers.borrow().waiting.len()
}

/// When the first waiting LOCK.MAIL is answered at the latest, with letters or without.
pub(super) fn next_limit(waiting: &Waiting) -> Option<Instant> {
    let readers = waiting.readers.borrow();
    readers.limits.first().map(|(limit, _)| *limit)
}

/// The box has letters behind `after`.
pub(crate) fn has_letters_after(waiting: &Waiting, id: BoxId, after: Option<u64>) -> bool {
    waiting.post.mail.borrow().has_letters_after(id, after)
}

/// A LOCK.MAIL waits for the box already.
pub(crate) fn is_read(waiting: &Waiting, id: BoxId) -> bool {
    waiting.readers.borrow().waiting.contains_key(&id)
}

/// Blocks the client until the box has letters, but not beyond `limit`: the caller arms the timer.
pub(crate) fn wait(ctx: &Context<'_>, id: BoxId, call: MailCall, limit: Instant) {
    let Some(blocked) = ctx.block() else {
        return reply(ctx, id, call);
    };
    let blocked =
        state::get(ctx)
            .clients
            .borrow_mut()
            .add_reader(blocked, ctx.client_id(), id, call);
    let mut readers = state::get(ctx).readers.borrow_mut();
    readers.waiting.insert(id, (blocked, limit));
    readers.limits.insert((limit, id));
}

/// Replies `[since, waited, letters]`. The letters count as delivered from now on.
pub(crate) fn reply(ctx: &Context<'_>, id: BoxId, call: MailCall) {
    let post = &state::get(ctx).post;
    let now = clock::now_micros();
    let listened = post.listened(Instant::from_millis(now / 1_000));
    let mut mail = post.mail.borrow_mut();
    let letters = mail.deliver(id, call.count, listened);
    ctx.reply_array(3);
    ctx.reply_integer(id.0 as i64);
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
    ctx.reply_map(fields + usize::from(letter.keys.is_some()));
    ctx.reply_text(c"number");
    ctx.reply_integer(number as i64);
    ctx.reply_text(c"key");
    ctx.reply_bytes(&letter.key.name);
    if let Some(keys) = &letter.keys {
        ctx.reply_text(c"keys");
        ctx.reply_array(keys.as_slice().len());
        for key in keys.as_slice() {
            ctx.reply_bytes(&key.name);
        }
    }
    ctx.reply_text(c"db");
    ctx.reply_integer(i64::from(db.0));
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
            for (field, value) in [
                (c"token", token.get()),
                (c"lease", lease.as_millis()),
                (c"age", mail::age(*at, now)),
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

/// The box has a letter: a waiting LOCK.MAIL gets its reply at the end of the turn.
pub(super) fn on_letter(ctx: &Context<'_>, id: BoxId) {
    if is_read(state::get(ctx), id) {
        work::answer_mail(ctx, id);
    }
}

/// Answers the LOCK.MAIL that waits for the box, if there are letters. What has left in the same turn has taken its letters along.
pub(crate) fn answer(ctx: &Context<'_>, id: BoxId) {
    if has_letters_after(state::get(ctx), id, None) {
        end_call(ctx, id, None);
    }
}

/// The LOCK.MAIL that waits for the box is answered: with letters, or with `refusal`.
pub(super) fn end_call(ctx: &Context<'_>, id: BoxId, refusal: Option<Error>) {
    let mut readers = state::get(ctx).readers.borrow_mut();
    let Some((blocked, limit)) = readers.waiting.remove(&id) else {
        return;
    };
    readers.limits.remove(&(limit, id));
    drop(readers);
    let blocked = state::get(ctx)
        .clients
        .borrow_mut()
        .answer_reader(blocked, refusal);
    if let Some(blocked) = blocked {
        work::wake(ctx, blocked);
    }
}

/// Answers one LOCK.MAIL whose time is up. False if there is none.
pub(crate) fn time_one_out(ctx: &Context<'_>, now: Instant) -> bool {
    let Some((limit, id)) = state::get(ctx).readers.borrow().limits.first().copied() else {
        return false;
    };
    if limit > now {
        return false;
    }
    end_call(ctx, id, None);
    true
}

/// The server asks for the reply of a LOCK.MAIL.
pub(super) fn deliver(ctx: &Context<'_>, awaited: &AwaitedLetters) {
    match &awaited.refusal {
        Some(error) => ctx.reply_error(&error.to_string()),
        None => reply(ctx, awaited.id, awaited.call),
    }
}

/// CLIENT UNBLOCK, or the client is gone: a LOCK.MAIL that has not been answered yet stops waiting. True if it waited.
pub(super) fn leave(ctx: &Context<'_>, blocked: BlockedId, awaited: &AwaitedLetters) -> bool {
    let readers = state::get(ctx).readers.borrow();
    let waiting = readers.waiting.get(&awaited.id);
    let waits = waiting.is_some_and(|(handle, _)| *handle == blocked);
    drop(readers);
    if waits {
        end_call(ctx, awaited.id, None);
    }
    waits
}

/// The client is gone. If its LOCK.MAIL waited, the box closes soon, unless it is asked for again.
pub(super) fn on_disconnect(ctx: &Context<'_>, blocked: BlockedId, awaited: &AwaitedLetters) {
    if !leave(ctx, blocked, awaited) {
        return;
    }
    let waiting = state::get(ctx);
    waiting.clients.borrow_mut().set_lost(blocked);
    let lost = waiting.post.listened(clock::now());
    let mut mail = waiting.post.mail.borrow_mut();
    mail.set_lost(awaited.id, Some(lost));
}

/// The server has done with a client. One that is still connected was not lost: CLIENT UNBLOCK … ERROR looks the same until now.
pub(super) fn on_freed(ctx: &Context<'_>, awaited: &AwaitedLetters) {
    if awaited.is_lost && ctx.is_connected(awaited.client) {
        let mut mail = state::get(ctx).post.mail.borrow_mut();
        mail.set_lost(awaited.id, None);
    }
}
