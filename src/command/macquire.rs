//! `LOCK.MACQUIRE owner lease numkeys key [key …] [WAIT ms [MAIL box]] [FENCE token]`: several locks at once, all or none

use mortise_core::{KeyId, KeyList, Observed, Request, Sharing, Stake, Terms, Token};

use super::answer::{self, Answer};
use super::docs;
use super::parse::Parse;
use super::{check_primary, check_token, has_left};
use crate::error::Error;
use crate::ffi::{Arg, Args, Command, Context, Docs, Keys};
use crate::time::last_deadline;
use crate::time::{self, clock};
use crate::totals;
use crate::waiting;
use crate::waiting::blocking;
use crate::waiting::mail::{self, Mailbox};
use crate::waiting::several::{self, Place};
use crate::work::open_lock::OpenLock;
use crate::work::{several as grants, slots};

pub(crate) struct MAcquire;

struct Call<'c> {
    keys: Vec<Arg<'c>>,
    request: Request<'c>,
    /// Milliseconds, 0 for no limit; `None` to be answered at once.
    wait: Option<u64>,
    /// The box to which the answer goes if it has to wait.
    mailbox: Option<&'c [u8]>,
}

fn parse<'c>(ctx: &Context<'_>, args: Args<'c>) -> Result<Call<'c>, Error> {
    let mut parse = Parse::new(ctx, args);
    let (owner, lease, keys) = (parse.owner()?, parse.lease()?, parse.keys()?);
    let (mut wait, mut mailbox, mut fence) = (None, None, None);
    while let Some(option) = parse.option() {
        if option.is("WAIT") {
            parse.wait_into(&mut wait)?;
        } else if option.is("MAIL") {
            parse.mailbox_into(&mut mailbox)?;
        } else if option.is("FENCE") {
            parse.token_into("FENCE", &mut fence)?;
        } else {
            return Err(option.unknown());
        }
    }
    if mailbox.is_some() && wait.is_none() {
        return Err(Error::Needs("MAIL", "WAIT"));
    }
    let terms = Terms {
        // At most 16.
        sharing: Sharing::several(keys.len() as u8),
        lease,
        holds: None,
        fence,
        token: None,
        client: 0,
    };
    Ok(Call {
        keys,
        request: Request { owner, terms },
        wait,
        mailbox,
    })
}

impl Command for MAcquire {
    const NAME: &'static str = "LOCK.MACQUIRE";
    const MIN_ARGS: usize = 5;
    const DOCS: &'static Docs = &docs::MACQUIRE;
    const KEYS: Keys = Keys::NumberedAt(3);

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        check_primary(ctx)?;
        let mut call = parse(ctx, args)?;
        if let Some(fence) = call.request.terms.fence {
            check_token(ctx, "FENCE", fence, clock::command_wall())?;
        }
        let owner = call.request.owner;
        if call.keys.iter().any(|key| has_left(ctx, *key, owner)) {
            return Err(Error::Left);
        }
        let mailbox = answer::find_mailbox(ctx, call.mailbox, &mut call.request.terms)?;
        if slots::is_moving(ctx, ctx.key(call.keys[0])) {
            return Err(Error::SlotMoves);
        }
        take(ctx, &call, mailbox)?.reply(ctx);
        Ok(())
    }
}

/// A key as the request has found it.
struct Found {
    /// What the owner holds there.
    hold: Option<Stake>,
    has_waiters: bool,
    /// Nobody holds, and the server grants.
    is_free: bool,
    held: Observed,
}

fn find<'c>(ctx: &'c Context<'c>, call: &Call<'c>, key: Arg<'c>) -> Result<Found, Error> {
    OpenLock::with(ctx, key, |lock| {
        let grants = !time::grace(ctx).forbids_grants(lock.now);
        let (hold, is_free) = lock.with_live(|live| {
            let hold = live.hold(call.request.owner);
            (hold, live.admits(&call.request))
        });
        Found {
            hold,
            has_waiters: lock.has_waiters(),
            is_free: grants && is_free,
            held: lock.observe(),
        }
    })
}

fn take<'c>(
    ctx: &'c Context<'c>,
    call: &Call<'c>,
    mailbox: Option<Mailbox<'_>>,
) -> Result<Answer, Error> {
    let found: Result<Vec<_>, _> = call.keys.iter().map(|key| find(ctx, call, *key)).collect();
    let found = found?;
    let keys = KeyList::new(grants::ids(ctx, &call.keys));
    if found.iter().any(|found| found.hold.is_some()) {
        let token = repeat(ctx, call, &found)?;
        accepted(ctx, &keys, call, mailbox);
        return Ok(Answer::Granted(token));
    }
    let now = clock::now();
    let until = answer::until(call.wait, now);
    let owner = call.request.owner;
    if let Some(id) = several::queued_already(ctx, &keys, owner, mailbox.is_some())?
        && let Some(mailbox) = mailbox
    {
        let id = several::take_over(ctx, id, &keys, &call.request, until, mailbox, now)?;
        mail::withdraw_refusal_of_several(waiting::state(ctx), &keys, owner);
        return Ok(Answer::Queued(id));
    }
    let all_free = found.iter().all(|found| found.is_free);
    if all_free && !found.iter().any(|found| found.has_waiters) {
        let granted = grants::grant_new(ctx, &call.keys, &call.request)?;
        let token = granted.token();
        accepted(ctx, &keys, call, mailbox);
        granted.notify(ctx, &call.keys);
        return Ok(Answer::Granted(token));
    }
    let may_block = call.wait.is_some() && !ctx.denies_blocking();
    if mailbox.is_none() && !may_block && !all_free {
        return Ok(Answer::Null);
    }
    let places = found.into_iter().zip(keys.as_slice());
    let places = places.map(|(found, key)| Place {
        key: key.clone(),
        is_ready: found.is_free && !found.has_waiters,
        held: found.held,
    });
    let enqueued = several::enqueue(ctx, places.collect(), &call.request, now, until);
    let refuse = |cycle: Vec<KeyId>| blocking::deadlock(ctx, &cycle, &ctx.viewer());
    if let Some(mailbox) = mailbox {
        let id = several::expect(
            ctx,
            enqueued.map_err(refuse)?,
            call.keys.len(),
            mailbox,
            now,
        )?;
        mail::withdraw_refusal_of_several(waiting::state(ctx), &keys, owner);
        return Ok(Answer::Queued(id));
    }
    if may_block {
        return Ok(match several::block(ctx, enqueued.map_err(refuse)?)? {
            true => Answer::Blocked,
            false => Answer::Null,
        });
    }
    // It cannot wait. Perhaps it may move to the head of all its queues, to end a cycle.
    let Ok(enqueued) = enqueued else {
        return Ok(Answer::Null);
    };
    if !several::let_past(ctx, &enqueued) {
        return Ok(Answer::Null);
    }
    let granted = grants::grant_moved(ctx, &call.keys, enqueued.id);
    several::withdraw(ctx, enqueued.id);
    Ok(match granted {
        Some(granted) => {
            let token = granted.token();
            granted.notify(ctx, &call.keys);
            Answer::Granted(token)
        }
        None => Answer::Null,
    })
}

/// The request was granted: its box exists from now on, and an earlier refusal is withdrawn.
fn accepted(ctx: &Context<'_>, keys: &KeyList, call: &Call<'_>, mailbox: Option<Mailbox<'_>>) {
    let Some(mailbox) = mailbox else { return };
    mailbox.open_if_room(ctx);
    mail::withdraw_refusal_of_several(waiting::state(ctx), keys, call.request.owner);
}

/// Its owner holds some of the keys. If it holds all of them, for writing and by one token, the reply of the same request was
/// lost: its leases are extended.
fn repeat<'c>(ctx: &'c Context<'c>, call: &Call<'c>, found: &[Found]) -> Result<Token, Error> {
    let holds: Option<Vec<Stake>> = found.iter().map(|found| found.hold).collect();
    let holds = holds.ok_or(Error::HoldsOne)?;
    let token = holds[0].token;
    if holds
        .iter()
        .any(|hold| hold.write == 0 || hold.token != token)
    {
        return Err(Error::HoldsOne);
    }
    if holds.iter().any(|hold| hold.revoked) {
        return Err(Error::Revoked);
    }
    let now = clock::now();
    if time::grace(ctx).forbids_grants(now) {
        return Err(Error::NotGranting(time::grace(ctx).left(now)));
    }
    let Request { owner, terms } = call.request;
    for key in &call.keys {
        OpenLock::with(ctx, *key, |lock| {
            let renewed = lock
                .live()
                .and_then(|mut live| live.renew(owner, terms.lease, Some(token)));
            if renewed.is_none() {
                // Its lease has ended since the check.
                return Err(Error::HoldsOne);
            }
            let deadline = lock.now.after(terms.lease.as_millis());
            last_deadline::note(time::state(ctx), deadline);
            lock.replicate(owner);
            Ok(())
        })??;
    }
    totals::get(ctx).reentries.add_one();
    Ok(token)
}
