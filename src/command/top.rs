//! `LOCK.TOP [COUNT n]`

use super::parse::Parse;
use crate::error::Error;
use crate::ffi::{Args, Command, Context};

pub(crate) struct Top;

impl Command for Top {
    const NAME: &'static str = "LOCK.TOP";
    const MIN_ARGS: usize = 1;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let mut parse = Parse::new(args);
        let mut count = None;
        while let Some(option) = parse.option() {
            if !option.is("COUNT") {
                return Err(option.unknown());
            }
            parse.count_into(&mut count)?;
        }
        // Nobody waits on this server.
        ctx.reply_array(0);
        Ok(())
    }
}
