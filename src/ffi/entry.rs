//! How the server calls commands.

use std::os::raw::c_int;

use redis_module::raw;

use super::args::Args;
use super::catch::catch;
use super::context::Context;
use super::docs::Docs;
use super::inner_command;
use crate::error::Error;

/// A command of the module.
pub(crate) trait Command {
    /// Its name.
    const NAME: &'static str;
    /// How many arguments it takes at least, its name included.
    const MIN_ARGS: usize;
    /// For COMMAND DOCS, cluster clients and ACLs.
    const DOCS: &'static Docs;
    /// Where the arguments begin that are a command of their own, if the command carries one. Its keys are keys of both.
    const CARRIES_AT: Option<usize> = None;
    /// Where the number of its keys stands, if it takes several: they follow it. The server reads that from the docs, too, but
    /// not of a command that another one carries.
    const NUMKEYS_AT: Option<usize> = None;

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
    if let Some(carried_at) = C::CARRIES_AT {
        // SAFETY: as below.
        let asked_for_keys = unsafe { inner_command::reported_keys(ctx, argv, argc, carried_at) };
        if asked_for_keys {
            return raw::REDISMODULE_OK as c_int;
        }
    }
    if let Some(numkeys_at) = C::NUMKEYS_AT {
        // SAFETY: as below.
        let asked_for_keys =
            unsafe { inner_command::reported_numbered_keys(ctx, argv, argc, numkeys_at) };
        if asked_for_keys {
            return raw::REDISMODULE_OK as c_int;
        }
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
