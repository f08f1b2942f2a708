//! `LOCK.RELEASE key owner [READ|WRITE] [HOLDS n | ALL] [TOKEN t]`

use mortise_core::{How, Mode, ReleaseError};

use super::docs;
use super::parse::{Parse, once};
use super::{check_primary, has_left};
use crate::error::Error;
use crate::ffi::{Arg, Args, Command, Context, Docs};
use crate::work::open_lock::OpenLock;

pub(crate) struct Release;

struct Call<'c> {
    key: Arg<'c>,
    release: mortise_core::Release<'c>,
}

fn parse<'c>(ctx: &Context<'_>, args: Args<'c>) -> Result<Call<'c>, Error> {
    let mut parse = Parse::new(ctx, args);
    let (key, owner) = (parse.key()?, parse.owner()?);
    let (mut mode, mut holds, mut all, mut token) = (None, None, None, None);
    while let Some(option) = parse.option() {
        if option.is("READ") {
            set_mode("READ", Mode::Read, &mut mode)?;
        } else if option.is("WRITE") {
            set_mode("WRITE", Mode::Write, &mut mode)?;
        } else if option.is("HOLDS") {
            parse.holds_left_into(&mut holds)?;
        } else if option.is("ALL") {
            once("ALL", &all)?;
            all = Some(());
        } else if option.is("TOKEN") {
            parse.token_into("TOKEN", &mut token)?;
        } else {
            return Err(option.unknown());
        }
    }
    let how = match (all, holds, mode) {
        (Some(()), Some(_), _) => return Err(Error::Exclusive("ALL", "HOLDS")),
        (Some(()), None, Some(_)) => return Err(Error::Exclusive("ALL", "a mode")),
        (Some(()), None, None) => How::All,
        (None, Some(holds), mode) => How::LeaveAt(holds, mode),
        (None, None, mode) => How::One(mode),
    };
    Ok(Call {
        key,
        release: mortise_core::Release { owner, how, token },
    })
}

fn set_mode(name: &'static str, mode: Mode, slot: &mut Option<Mode>) -> Result<(), Error> {
    match slot.replace(mode) {
        None => Ok(()),
        Some(already) if already == mode => Err(Error::Twice(name)),
        Some(_) => Err(Error::Exclusive("READ", "WRITE")),
    }
}

impl Command for Release {
    const NAME: &'static str = "LOCK.RELEASE";
    const MIN_ARGS: usize = 3;
    const DOCS: &'static Docs = &docs::RELEASE;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        check_primary(ctx)?;
        let Call { key, release } = parse(ctx, args)?;
        if has_left(ctx, key, release.owner) {
            ctx.reply_null();
            return Ok(());
        }
        match OpenLock::with(ctx, key, |lock| lock.release(&release))? {
            Ok(released) => ctx.reply_integer(released.left as i64),
            Err(ReleaseError::NotHeld) => ctx.reply_null(),
            Err(ReleaseError::ModeNotNamed) => return Err(Error::ModeNotNamed),
        }
        Ok(())
    }
}
