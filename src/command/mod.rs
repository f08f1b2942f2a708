//! The commands, one file each: the arguments, then what is asked of the core, then the reply.

mod acquire;
pub(crate) mod docs;
mod fence;
mod guard;
mod info;
mod parse;
mod release;
mod renew;
mod top;

pub(crate) use acquire::{Acquire, RLock, WLock};
pub(crate) use fence::Fence;
pub(crate) use guard::Guard;
pub(crate) use info::Info;
pub(crate) use parse::integer;
pub(crate) use release::Release;
pub(crate) use renew::Renew;
pub(crate) use top::Top;

use mortise_core::{Instant, Micros, Token};

use crate::error::Error;
use crate::ffi::Context;

/// Refuses a change on a replica. The server does so itself unless the replica is writable.
fn check_primary(ctx: &Context<'_>) -> Result<(), Error> {
    if ctx.state().primary.get() {
        Ok(())
    } else {
        Err(Error::ReadOnly)
    }
}

/// Refuses a token past its bound, whatever the key holds.
fn check_token(
    ctx: &Context<'_>,
    argument: &'static str,
    token: Token,
    wall: Micros,
) -> Result<(), Error> {
    let checked = ctx.state().tokens.borrow().check(token, wall);
    checked.map_err(|error| Error::too_high(argument, Some(token), error))
}

/// Refuses to renew while another primary may still be granting.
fn check_renewable(ctx: &Context<'_>, now: Instant) -> Result<(), Error> {
    match ctx.state().grace.forbids_renewals(now) {
        0 => Ok(()),
        left => Err(Error::TryAgain(left)),
    }
}
