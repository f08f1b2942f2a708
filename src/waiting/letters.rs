//! What a LOCK.MAIL gets: the letters of its box.

use mortise_core::mail::{self, BoxId, Numbered, Outcome};
use mortise_core::{Instant, Mode};

use crate::error::Error;
use crate::ffi::Context;
use crate::time::clock;
use crate::waiting::clients::MailCall;
use crate::waiting::{self, clients, undelivered};

/// A LOCK.MAIL has arrived for the box: forgets its letters up to `after`, and ends the LOCK.MAIL that waits for it.
pub(crate) fn ask(ctx: &Context<'_>, id: BoxId, after: Option<u64>, now: Instant) {
    clients::answer_reader(ctx, id, Some(&Error::NEWER_MAIL));
    let boxes = waiting::boxes(ctx);
    let mut mail = boxes.mail.borrow_mut();
    for waiter in mail.ask(id, after, boxes.listened(now)) {
        undelivered::delivered(ctx, waiter);
    }
}

/// Blocks the client until the box has letters, but not beyond `limit`.
pub(crate) fn wait(ctx: &Context<'_>, call: MailCall, limit: Instant) {
    let Some(blocked) = ctx.block() else {
        return reply(ctx, call);
    };
    let mut clients = waiting::clients(ctx).borrow_mut();
    clients.add_reader(blocked, ctx.client_id(), call, limit);
    drop(clients);
    waiting::arm(ctx);
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
    let listened = boxes.listened(Instant::from_millis(now / 1_000));
    let mut mail = boxes.mail.borrow_mut();
    let letters = mail.deliver(call.id, call.count, listened);
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
    ctx.reply_map(fields + usize::from(letter.keys.is_some()));
    ctx.reply_field(c"number", number as i64);
    ctx.reply_text(c"key");
    ctx.reply_bytes(&letter.key.name);
    if let Some(keys) = &letter.keys {
        ctx.reply_text(c"keys");
        ctx.reply_array(keys.as_slice().len());
        for key in keys.as_slice() {
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
