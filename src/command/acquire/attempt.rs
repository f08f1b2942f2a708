//! What a request to hold says, and the attempt to grant it at once: all of its keys, or none.

use mortise_core::{
    AcquireError, Grant, Instant, KeyId, Mode, PendingKey, PendingRequest, Request, Sharing, Stake,
    Terms, Token, Turn, WaiterId,
};

use crate::command::parse::Parse;
use crate::error::Error;
use crate::ffi::{Arg, Args, Context};
use crate::keys::tokens;
use crate::time::{self, clock};
use crate::totals;
use crate::waiting::{self, pending};
use crate::work::open_lock::{Notice, Notices, OpenLock};
use crate::work::{grant, slots};

/// Which of the commands it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Write,
    Read,
    Several,
}

/// The keys that a request names.
pub(super) enum Named<'c> {
    One(Arg<'c>),
    /// 1 to 16, all or none.
    Several(Vec<Arg<'c>>),
}

impl<'c> Named<'c> {
    pub(super) fn as_slice(&self) -> &[Arg<'c>] {
        match self {
            Self::One(key) => std::slice::from_ref(key),
            Self::Several(keys) => keys,
        }
    }
}

pub(super) struct Call<'c> {
    pub(super) named: Named<'c>,
    pub(super) request: Request<'c>,
    /// Milliseconds, 0 for no limit; `None` to be answered at once.
    pub(super) wait: Option<u64>,
    /// The box to which the answer goes if it has to wait.
    pub(super) mailbox: Option<&'c [u8]>,
}

pub(super) fn parse<'c>(ctx: &Context<'_>, args: Args<'c>, form: Form) -> Result<Call<'c>, Error> {
    let mut parse = Parse::of_change(ctx, args)?;
    let key = match form {
        Form::Several => None,
        Form::Write | Form::Read => Some(parse.key()?),
    };
    let (owner, lease) = (parse.owner("owner")?, parse.lease()?);
    let named = match key {
        Some(key) => Named::One(key),
        None => Named::Several(parse.keys()?),
    };
    let is_one = form != Form::Several;
    let (mut wait, mut mailbox, mut fence) = (None, None, None);
    let (mut holds, mut token, mut limit) = (None, None, None);
    parse.options(|parse| {
        Ok(parse.option("WAIT", &mut wait, Parse::wait)?
            || parse.option("MAIL", &mut mailbox, Parse::mailbox)?
            || parse.option("FENCE", &mut fence, Parse::token)?
            || is_one && parse.option("HOLDS", &mut holds, Parse::count)?
            || is_one && parse.option("TOKEN", &mut token, Parse::token)?
            || form == Form::Read && parse.option("LIMIT", &mut limit, Parse::count)?)
    })?;
    if mailbox.is_some() {
        match form {
            Form::Several if wait.is_none() => {
                return Err(Error::syntax("option MAIL needs WAIT"));
            }
            Form::Write | Form::Read if wait.is_none() || holds.is_none() => {
                return Err(Error::syntax("option MAIL needs WAIT and HOLDS"));
            }
            _ => {}
        }
    }
    if let (Some(limit), Some(holds)) = (limit, holds)
        && holds > limit
    {
        let bounds = format!("at most {} (LIMIT)", limit.get());
        let got = holds.get().to_string();
        return Err(Error::bounds("HOLDS", &bounds, got.as_bytes()));
    }
    let terms = Terms {
        sharing: match (form, limit) {
            (Form::Write, _) => Mode::Write.into(),
            (Form::Read, None) => Mode::Read.into(),
            (Form::Read, Some(limit)) => Sharing::within(limit),
            // At most 16.
            (Form::Several, _) => Sharing::several(named.as_slice().len() as u8),
        },
        lease,
        holds,
        fence,
        token,
        client: ctx.client_id(),
    };
    let request = Request { owner, terms };
    Ok(Call {
        named,
        request,
        wait,
        mailbox,
    })
}

impl Call<'_> {
    /// Whether the request may wait if it cannot be granted at once.
    pub(super) fn may_wait(&self, ctx: &Context<'_>) -> bool {
        self.mailbox.is_some() || self.wait.is_some() && !ctx.denies_blocking()
    }
}

/// What became of a request that was tried.
pub(super) enum Attempt {
    Granted(Token),
    /// It may only add to a hold: the owner has none by its token, or its limit leaves no room.
    Denied,
    /// It may wait.
    Busy(Unmet),
}

/// Why a request was not granted.
pub(super) struct Unmet {
    pub(super) now: Instant,
    pub(super) busy: mortise_core::Busy,
    /// All its locks would admit it if nobody stood ahead of it.
    pub(super) is_free: bool,
    /// The request that waits by mail already and that this one repeats.
    pub(super) repeats: Option<WaiterId>,
    pub(super) keys: Vec<PendingKey>,
}

impl Unmet {
    /// The request as it would wait.
    pub(super) fn into_request(self, call: &Call<'_>) -> PendingRequest {
        let limit = call.wait.filter(|wait| *wait > 0);
        let mut terms = call.request.terms;
        if call.mailbox.is_some() {
            // A letter is granted to no connection.
            terms.client = 0;
        }
        PendingRequest {
            keys: self.keys,
            owner: call.request.owner.to_owner(),
            terms,
            busy: self.busy,
            since: self.now,
            until: limit.map_or(Instant::NEVER, |wait| self.now.after(wait)),
        }
    }
}

/// Tries to grant the request. With `may_overtake` it stands ahead of the requests for several keys that wait there.
///
/// # Errors
/// Nothing has changed.
pub(super) fn attempt<'c>(
    ctx: &'c Context<'c>,
    call: &Call<'c>,
    may_overtake: bool,
    notices: &mut Notices<'c>,
) -> Result<Attempt, Error> {
    match &call.named {
        Named::One(key) => OpenLock::with_notices(ctx, *key, clock::now(), notices, |lock| {
            one(lock, call, may_overtake)
        })?,
        Named::Several(names) => several(ctx, call, names, may_overtake, notices),
    }
}

fn one(lock: &mut OpenLock<'_>, call: &Call<'_>, may_overtake: bool) -> Result<Attempt, Error> {
    let (ctx, now, request) = (lock.ctx, lock.now, &call.request);
    let (mut turn, mut repeats) = (Turn::First, None);
    if lock.has_waiters() && !may_overtake {
        turn = Turn::Behind;
        let key = [lock.key_ref().to_id()];
        repeats = pending::repeated(ctx, &key, request, call.mailbox.is_some())?;
    }
    let forbidden = time::grace(ctx).forbids_grants(now);
    let outcome = lock.with_live(|live| match forbidden {
        true => Err(live.refuse_in_grace(request)),
        false => {
            let mut tokens = tokens::clock(ctx).borrow_mut();
            live.acquire(request, turn, &mut tokens, clock::command_wall())
        }
    });
    match outcome {
        Ok(grant) => {
            lock.replicate_hold(request.owner, grant.stake());
            lock.notify(Notice::Acquired);
            totals::add_grant(ctx, grant);
            Ok(Attempt::Granted(grant.token()))
        }
        Err(AcquireError::NotHeldByToken | AcquireError::NoRoom) => Ok(Attempt::Denied),
        Err(AcquireError::Busy(busy)) => {
            let is_free = turn == Turn::Behind
                && !forbidden
                && waiting::queues(ctx).borrow().any_several()
                && lock.with_live(|live| live.admits(request));
            // Mostly a request that does not wait is answered now.
            let keys = match is_free || call.may_wait(ctx) {
                true => vec![pending_key(lock)],
                false => Vec::new(),
            };
            Ok(Attempt::Busy(Unmet {
                now,
                busy,
                is_free,
                repeats,
                keys,
            }))
        }
        Err(error) => Err(error.into()),
    }
}

fn pending_key(lock: &mut OpenLock<'_>) -> PendingKey {
    PendingKey {
        key: lock.key_ref().to_id(),
        held: lock.observe(),
    }
}

/// One of several keys as the request finds it.
struct Found {
    /// What the owner holds there.
    hold: Option<Stake>,
    /// The lock would admit the request if nobody stood ahead of it.
    admits: bool,
    has_waiters: bool,
    pending: PendingKey,
}

fn several<'c>(
    ctx: &'c Context<'c>,
    call: &Call<'c>,
    names: &[Arg<'c>],
    may_overtake: bool,
    notices: &mut Notices<'c>,
) -> Result<Attempt, Error> {
    let (now, request) = (clock::now(), &call.request);
    let is_moving = |name: &Arg<'_>| slots::is_moving(ctx, ctx.key(*name));
    if names.first().is_some_and(is_moving) {
        return Err(Error::SLOT_MOVES);
    }
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        found.push(OpenLock::with_notices(ctx, *name, now, notices, |lock| {
            find(lock, request)
        })?);
    }
    if found.iter().any(|found| found.hold.is_some()) {
        return again(ctx, request, now, names, &found, notices).map(Attempt::Granted);
    }
    let keys = found.iter().map(|found| found.pending.key.clone());
    let keys: Vec<KeyId> = keys.collect();
    let repeats = pending::repeated(ctx, &keys, request, call.mailbox.is_some())?;
    let is_granting = !time::grace(ctx).forbids_grants(now);
    let is_free = is_granting && found.iter().all(|found| found.admits);
    let is_behind = found.iter().any(|found| found.has_waiters);
    if is_free && repeats.is_none() && (may_overtake || !is_behind) {
        let token = grant::new(ctx, names, request, may_overtake, notices)?;
        return Ok(Attempt::Granted(token));
    }
    Ok(Attempt::Busy(Unmet {
        now,
        busy: mortise_core::Busy::Held,
        is_free,
        repeats,
        keys: found.into_iter().map(|found| found.pending).collect(),
    }))
}

fn find(lock: &mut OpenLock<'_>, request: &Request<'_>) -> Found {
    let (hold, admits) = lock.with_live(|live| (live.hold(request.owner), live.admits(request)));
    Found {
        hold,
        admits,
        has_waiters: lock.has_waiters(),
        pending: pending_key(lock),
    }
}

/// Its owner holds some of the keys. If it holds all of them, for writing and by one token, the reply of the same request was
/// lost: its leases are extended.
fn again<'c>(
    ctx: &'c Context<'c>,
    request: &Request<'_>,
    now: Instant,
    names: &[Arg<'c>],
    found: &[Found],
    notices: &mut Notices<'c>,
) -> Result<Token, Error> {
    let holds: Vec<Stake> = found.iter().filter_map(|found| found.hold).collect();
    if holds.iter().any(|hold| hold.revoked) {
        return Err(Error::REVOKED);
    }
    let token = holds[0].token;
    let is_same = |hold: &Stake| hold.write > 0 && hold.token == token;
    if holds.len() < names.len() || !holds.iter().all(is_same) {
        return Err(Error::HOLDS_ONE);
    }
    if time::grace(ctx).forbids_grants(now) {
        return Err(Error::not_granting(time::grace(ctx).left(now)));
    }
    for name in names {
        let renewed = OpenLock::with_notices(ctx, *name, now, notices, |lock| {
            let renewed = lock.renew(request.owner, request.terms.lease, Some(token));
            renewed.inspect(|_| lock.notify(Notice::Acquired))
        })?;
        // Its lease has ended since the check.
        renewed.ok_or(Error::HOLDS_ONE)?;
    }
    totals::add_grant(ctx, Grant::Reentry(holds[0]));
    Ok(token)
}
