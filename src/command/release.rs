//! `LOCK.RELEASE key owner [READ|WRITE] [HOLDS n | ALL] [TOKEN t]`

use mortise_core::{How, Mode, ReleaseError, Token};

use super::change_hold;
use super::parse::Parse;
use crate::error::Error;
use crate::ffi::{Args, Command, Context, Docs, Keys};

pub(crate) struct Release;

impl Command for Release {
    const DOCS: Docs = Docs {
        name: "LOCK.RELEASE",
        usage: "key owner [mode: READ|WRITE] [how-much: HOLDS holds|ALL] [TOKEN token]",
        summary: c"Gives up one hold, or more, of an owner and returns how many it has left.",
        complexity:
            c"O(log N) with N the number of holders and waiters, plus O(M) for M readers granted",
        flags: "write fast",
        keys: Keys::Write,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let mut parse = Parse::of_change(ctx, args)?;
        let (key, owner) = (parse.key()?, parse.owner("owner")?);
        let (how, token) = options(&mut parse)?;
        let release = mortise_core::Release { owner, how, token };
        change_hold(ctx, key, owner, |lock| match lock.release(&release) {
            Ok(released) => Ok(Some(released.left)),
            Err(ReleaseError::NotHeld) => Ok(None),
            Err(ReleaseError::ModeNotNamed) => Err(Error::MODE_NOT_NAMED),
        })
    }
}

fn options(parse: &mut Parse<'_>) -> Result<(How, Option<Token>), Error> {
    let (mut read, mut write, mut all) = (None, None, None);
    let (mut holds, mut token) = (None, None);
    parse.options(|parse| {
        Ok(parse.flag("READ", &mut read)?
            || parse.flag("WRITE", &mut write)?
            || parse.option("HOLDS", &mut holds, Parse::count_left)?
            || parse.flag("ALL", &mut all)?
            || parse.option("TOKEN", &mut token, Parse::token)?)
    })?;
    let mode = match (read, write) {
        (Some(()), Some(())) => return Err(Error::syntax("READ and WRITE exclude each other")),
        (Some(()), None) => Some(Mode::Read),
        (None, Some(())) => Some(Mode::Write),
        (None, None) => None,
    };
    let how = match (all, holds, mode) {
        (Some(()), Some(_), _) => return Err(Error::syntax("ALL and HOLDS exclude each other")),
        (Some(()), None, Some(_)) => {
            return Err(Error::syntax("ALL and a mode exclude each other"));
        }
        (Some(()), None, None) => How::All,
        (None, Some(holds), mode) => How::LeaveAt(holds, mode),
        (None, None, mode) => How::One(mode),
    };
    Ok((how, token))
}
