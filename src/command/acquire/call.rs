//! What a request to hold says: parsed, and made into one that waits.

use mortise_core::{
    Instant, KeyId, Mode, PendingKey, PendingRequest, Rank, Request, Sharing, Terms,
};

use crate::command::answer::{self, Answer};
use crate::command::parse::Parse;
use crate::error::Error;
use crate::ffi::{Arg, Args, Context};
use crate::waiting::mail::Mailbox;
use crate::waiting::pending::{How, Waits};

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
    pub(super) fn all(&self) -> &[Arg<'c>] {
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
    wait: Option<u64>,
    /// The box to which the answer goes if it has to wait.
    pub(super) mailbox: Option<&'c [u8]>,
}

pub(super) fn parse<'c>(ctx: &Context<'_>, args: Args<'c>, form: Form) -> Result<Call<'c>, Error> {
    let mut parse = Parse::new(ctx, args);
    let key = match form {
        Form::Several => None,
        Form::Write | Form::Read => Some(parse.key()?),
    };
    let (owner, lease) = (parse.owner()?, parse.lease()?);
    let named = match key {
        Some(key) => Named::One(key),
        None => Named::Several(parse.keys()?),
    };
    let is_one = form != Form::Several;
    let (mut wait, mut mailbox, mut fence) = (None, None, None);
    let (mut holds, mut token, mut limit) = (None, None, None);
    while let Some(option) = parse.option() {
        if option.is("WAIT") {
            parse.wait_into(&mut wait)?;
        } else if option.is("MAIL") {
            parse.mailbox_into(&mut mailbox)?;
        } else if option.is("FENCE") {
            parse.token_into("FENCE", &mut fence)?;
        } else if option.is("HOLDS") && is_one {
            parse.count_of_holds_into("HOLDS", &mut holds)?;
        } else if option.is("TOKEN") && is_one {
            parse.token_into("TOKEN", &mut token)?;
        } else if option.is("LIMIT") && form == Form::Read {
            parse.count_of_holds_into("LIMIT", &mut limit)?;
        } else {
            return Err(option.unknown());
        }
    }
    if mailbox.is_some() {
        match form {
            Form::Several if wait.is_none() => return Err(Error::Needs("MAIL", "WAIT")),
            Form::Write | Form::Read if wait.is_none() || holds.is_none() => {
                return Err(Error::Needs("MAIL", "WAIT and HOLDS"));
            }
            _ => {}
        }
    }
    if let (Some(limit), Some(holds)) = (limit, holds)
        && holds > limit
    {
        return Err(Error::Bounds {
            argument: "HOLDS",
            bounds: format!("at most {} (LIMIT)", limit.get()),
            got: holds.get().to_string().into(),
        });
    }
    let terms = Terms {
        sharing: match (form, limit) {
            (Form::Write, _) => Mode::Write.into(),
            (Form::Read, None) => Mode::Read.into(),
            (Form::Read, Some(limit)) => Sharing::within(limit),
            // At most 16.
            (Form::Several, _) => Sharing::several(named.all().len() as u8),
        },
        lease,
        holds,
        fence,
        token,
        client: 0,
    };
    let request = Request { owner, terms };
    Ok(Call {
        named,
        request,
        wait,
        mailbox,
    })
}

impl<'c> Call<'c> {
    pub(super) fn how<'m>(&self, ctx: &Context<'_>, mailbox: Option<Mailbox<'m>>) -> How<'m> {
        match mailbox {
            Some(mailbox) => How::ByMail(mailbox),
            None if self.wait.is_some() && !ctx.denies_blocking() => How::Blocked,
            None => How::Never,
        }
    }

    /// The request, which cannot be granted at `now`.
    pub(super) fn pending(
        &self,
        key: PendingKey,
        others: Vec<PendingKey>,
        rank: Rank,
        now: Instant,
    ) -> PendingRequest {
        PendingRequest {
            key,
            others,
            owner: self.request.owner.to_owner(),
            terms: self.request.terms,
            rank,
            since: now,
            until: answer::until(self.wait, now),
        }
    }
}

/// What a request is answered that could not be granted at once; `None` if it may have its locks now, ahead of requests for several keys.
pub(super) fn answer_of(waits: Waits) -> Option<Answer> {
    match waits {
        Waits::Queued(id) => Some(Answer::Queued(id)),
        Waits::Blocked => Some(Answer::Blocked),
        Waits::No => Some(Answer::Null),
        Waits::LetPast => None,
    }
}

/// The keys of `names`.
pub(super) fn ids(ctx: &Context<'_>, names: &[Arg<'_>]) -> Vec<KeyId> {
    names.iter().map(|name| ctx.key(*name).to_id()).collect()
}
