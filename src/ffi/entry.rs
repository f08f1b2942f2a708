//! How the server calls commands.

use std::os::raw::c_int;

use redis_module::raw;

use super::args::Args;
use super::catch::catch;
use super::context::Context;
use super::docs::Docs;
use super::key_request::{self, Keys};
use crate::error::Error;

/// A command of the module.
pub(crate) trait Command {
    /// Its name.
    const NAME: &'static str;
    /// How many arguments it takes at least, its name included.
    const MIN_ARGS: usize;
    /// For COMMAND DOCS, cluster clients and ACLs.
    const DOCS: &'static Docs;
    /// Which of its arguments are keys.
    const KEYS: Keys = Keys::Documented;

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
    if unsafe { key_request::answered(C::KEYS, ctx, argv, argc) } {
        return raw::REDISMODULE_OK as c_int;
    }
    let done = catch(C::NAME, || {
        // SAFETY: the server passes a context and `argc` strings that live until this returns.
        let (ctx, args) = unsafe { (Context::new(ctx), Args::new(argv, argc)) };
        let outcome = if args.len() < C::MIN_ARGS {
            Err(Error::Arity)
        } else {
            C::run(&ctx, args)
        };
        match outcome {
            Ok(()) => {}
            Err(Error::Arity) => ctx.reply_wrong_arity(),
            Err(error) => ctx.reply_error(&error.to_string()),
        }
    });
    if done.is_none() {
        catch("an error reply", || {
            // SAFETY: as above.
            unsafe { Context::new(ctx) }.reply_error(&Error::Bug.to_string());
        });
    }
    raw::REDISMODULE_OK as c_int
}
