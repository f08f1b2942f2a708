//! What a request to hold is answered, for one key or for several.

use mortise_core::mail::BoxId;
use mortise_core::{Instant, Terms, Token};

use crate::error::Error;
use crate::ffi::Context;
use crate::totals;
use crate::waiting::mail::{self, Mailbox};

/// What a request to hold is answered.
pub(super) enum Answer {
    Granted(Token),
    Null,
    /// It waits by mail.
    Queued(BoxId),
    /// It waits, and its client is blocked.
    Blocked,
}

impl Answer {
    /// Replies to the client, unless it is blocked.
    pub(super) fn reply(self, ctx: &Context<'_>) {
        match self {
            Self::Granted(token) => ctx.reply_integer(token.get() as i64),
            Self::Null => {
                totals::get(ctx).denied.add_one();
                ctx.reply_null();
            }
            Self::Queued(id) => {
                ctx.reply_array(2);
                ctx.reply_text(c"QUEUED");
                ctx.reply_integer(id.0 as i64);
            }
            Self::Blocked => {}
        }
    }
}

/// The box of a request by mail. Any other request is granted to the connection that sends it.
///
/// # Errors
/// [`Error::NotYourBox`].
pub(super) fn find_mailbox<'c>(
    ctx: &Context<'_>,
    name: Option<&'c [u8]>,
    terms: &mut Terms,
) -> Result<Option<Mailbox<'c>>, Error> {
    match name {
        Some(name) => mail::find(ctx, name).map(Some),
        None => {
            terms.client = ctx.client_id();
            Ok(None)
        }
    }
}

/// When a wait is over that begins now. `wait`: in milliseconds; 0, or none, for no limit.
pub(super) fn until(wait: Option<u64>, now: Instant) -> Instant {
    let wait = wait.filter(|wait| *wait > 0);
    wait.map_or(Instant::NEVER, |wait| now.after(wait))
}
