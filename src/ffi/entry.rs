//! How the server calls commands.

use std::os::raw::c_int;

use redis_module::raw;

use super::args::Args;
use super::catch::catch;
use super::context::Context;
use super::docs::Docs;
use super::key_request;
use crate::error::Error;

/// A command of the module.
pub(crate) trait Command {
    const DOCS: Docs;

    /// Runs it and writes its reply.
    ///
    /// # Errors
    /// An error is the reply; nothing has been written or changed.
    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error>;
}

/// The function that the server calls for the command `C`.
pub(super) unsafe extern "C" fn command<C: Command>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: as below.
    if unsafe { key_request::answered(C::DOCS.keys, ctx, argv, argc) } {
        return raw::REDISMODULE_OK as c_int;
    }
    let done = catch(C::DOCS.name, || {
        // SAFETY: the server passes a context and `argc` strings that live until this returns.
        let (ctx, args) = unsafe { (Context::new(ctx), Args::new(argv, argc)) };
        if let Err(error) = C::run(&ctx, args) {
            ctx.reply_error(error.text());
        }
    });
    if done.is_none() {
        catch("an error reply", || {
            // SAFETY: as above.
            unsafe { Context::new(ctx) }.reply_error(Error::BUG.text());
        });
    }
    raw::REDISMODULE_OK as c_int
}
