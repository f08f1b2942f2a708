//! What a request to hold says.

use mortise_core::{Mode, Request, Sharing, Terms};

use crate::command::parse::Parse;
use crate::error::Error;
use crate::ffi::{Arg, Args, Context};

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
    let mut parse = Parse::new(ctx, args);
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
        // A request by mail is granted to no connection.
        client: match mailbox {
            Some(_) => 0,
            None => ctx.client_id(),
        },
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
