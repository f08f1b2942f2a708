//! The commands, one file each: parse the arguments, call the core, reply.

mod acquire;
mod apply;
mod fence;
mod guard;
mod info;
mod leave;
mod mail;
mod parse;
mod pass;
mod release;
mod renew;
mod revoke;
mod settle;
mod top;

pub(crate) use acquire::{Acquire, MAcquire, RLock, WLock};
pub(crate) use apply::Apply;
pub(crate) use fence::Fence;
pub(crate) use guard::Guard;
pub(crate) use info::Info;
pub(crate) use leave::Leave;
pub(crate) use mail::Mail;
pub(crate) use pass::Pass;
pub(crate) use release::Release;
pub(crate) use renew::Renew;
pub(crate) use revoke::Revoke;
pub(crate) use settle::Settle;
pub(crate) use top::Top;

use mortise_core::{Instant, Live, Micros, OwnerRef, Stake, Token};

use crate::error::Error;
use crate::ffi::{Arg, Context};
use crate::keys::tokens;
use crate::time::{self, clock};
use crate::waiting;
use crate::work::open_lock::OpenLock;

/// Refuses a token past its bound, whatever the key holds.
fn check_token(
    ctx: &Context<'_>,
    argument: &'static str,
    token: Token,
    wall: Micros,
) -> Result<(), Error> {
    let checked = tokens::clock(ctx).borrow().check(token, wall);
    checked.map_err(|error| Error::too_high(argument, token, error))
}

/// Whether `owner` has left the key, so that what still arrives from it changes nothing.
fn has_left(ctx: &Context<'_>, key: Arg<'_>, owner: OwnerRef<'_>) -> bool {
    let left = waiting::left(ctx).borrow();
    !left.is_empty() && left.has_left(ctx.key(key), owner, clock::now())
}

/// The lock, unless `owner` has nothing there that may be renewed: see [`Lateness::may_revive`](time::lateness::Lateness::may_revive).
fn revivable<'l>(lock: &'l mut OpenLock<'_>, owner: OwnerRef<'_>) -> Option<Live<'l>> {
    let (ctx, now) = (lock.ctx, lock.now);
    let live = lock.live()?;
    if time::lateness(ctx).suspect_ms(now) == 0 {
        return Some(live);
    }
    let may = |stake: Stake| time::lateness(ctx).may_revive(&stake, now);
    live.hold(owner).is_some_and(may).then_some(live)
}

/// Changes the hold of `owner` at the key. Replies the number that `change` returns, or null if that is `None` or the owner has left.
fn change_hold(
    ctx: &Context<'_>,
    key: Arg<'_>,
    owner: OwnerRef<'_>,
    change: impl FnOnce(&mut OpenLock<'_>) -> Result<Option<u64>, Error>,
) -> Result<(), Error> {
    let changed = match has_left(ctx, key, owner) {
        true => None,
        false => OpenLock::with(ctx, key, change)??,
    };
    match changed {
        Some(number) => ctx.reply_integer(number as i64),
        None => ctx.reply_null(),
    }
    Ok(())
}

/// Refuses to renew while another primary may still be granting.
fn check_renewable(ctx: &Context<'_>, now: Instant) -> Result<(), Error> {
    match time::grace(ctx).forbids_renewals(now) {
        0 => Ok(()),
        left => Err(Error::not_renewing(left)),
    }
}
