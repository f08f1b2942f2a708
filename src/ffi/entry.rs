//! How the server calls commands: to run them, or to ask which of their arguments are keys (to send a cluster's client to the right node,
//! to check its user's key patterns, and for COMMAND GETKEYS).

use std::cell::Cell;
use std::os::raw::c_int;
use std::ptr;

use redis_module::raw;

use super::args::{Arg, Args};
use super::context::Context;
use super::docs::{Docs, Keys, NUMKEYS_AT, READ, WRITE};
use super::log::catch;
use crate::decimal::decimal;
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
    if unsafe { answered(C::DOCS.keys, ctx, argv, argc) } {
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

/// Where the command begins that another one carries.
const INNER_AT: usize = 4;
/// Where the key of a carrying command itself stands.
const OWN_KEY: c_int = 1;

thread_local! {
    /// This thread is collecting the keys of a carried command, which may carry one itself, and so
    /// on. Its name does not show that, because a command may be renamed, and a hundred thousand
    /// levels are more than a stack holds.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

/// True if the server called the command only to learn which of its arguments are keys; they have
/// been reported.
///
/// SAFETY: as for `command`.
unsafe fn answered(
    keys: Keys,
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> bool {
    let asks = matches!(keys, Keys::ReadAndInner | Keys::WriteNumbered);
    // SAFETY: see the module's head.
    if !asks || unsafe { api!(RedisModule_IsKeysPositionRequest, ctx) } == 0 {
        return false;
    }
    catch("reporting keys", || {
        // SAFETY: promised by the caller, and the context is one that asks for keys.
        unsafe {
            let args = Args::new(argv, argc);
            match keys {
                Keys::WriteNumbered => report_numbered(ctx, args),
                _ => report_carrying(ctx, args),
            }
        }
    });
    true
}

/// Reports the key of a command that carries another one, and the keys of that.
///
/// SAFETY: `ctx` is one that asks for keys.
unsafe fn report_carrying(ctx: *mut raw::RedisModuleCtx, args: Args<'_>) {
    // SAFETY: promised by the caller.
    unsafe {
        api!(
            RedisModule_KeyAtPosWithFlags,
            ctx,
            OWN_KEY,
            READ.bits() as c_int
        )
    };
    if !ASKING.replace(true) {
        // SAFETY: as above.
        unsafe { report_keys_of(ctx, args.from(INNER_AT)) };
        ASKING.set(false);
    }
}

/// Reports the keys that follow their number. Of a wrong number, there are none.
///
/// SAFETY: `ctx` is one that asks for keys.
unsafe fn report_numbered(ctx: *mut raw::RedisModuleCtx, args: Args<'_>) {
    let number = args.get(NUMKEYS_AT as usize).map(Arg::bytes);
    let number = number.and_then(decimal).unwrap_or(0);
    let first = NUMKEYS_AT as usize + 1;
    let given = (args.len() as u64).saturating_sub(first as u64);
    let keys = if number <= given { number as usize } else { 0 };
    for position in first..first + keys {
        let (position, flags) = (position as c_int, WRITE.bits() as c_int);
        // SAFETY: promised by the caller.
        unsafe { api!(RedisModule_KeyAtPosWithFlags, ctx, position, flags) };
    }
}

/// Reports the keys of `carried`, whose name is the argument at [`INNER_AT`]. A command that the
/// server does not know, or with too few arguments, has none.
///
/// SAFETY: `ctx` is one that asks for keys.
unsafe fn report_keys_of(ctx: *mut raw::RedisModuleCtx, carried: Args<'_>) {
    let strings = carried.as_slice();
    if strings.is_empty() {
        return;
    }
    let (mut count, mut flags) = (0, ptr::null_mut());
    // SAFETY: the strings live for the call, which does not change them. Both arrays have `count` elements and are
    // ours to free; there are none where the positions are null.
    unsafe {
        let positions = api!(
            RedisModule_GetCommandKeysWithFlags,
            ctx,
            strings.as_ptr().cast_mut(),
            strings.len() as c_int,
            &raw mut count,
            &raw mut flags,
        );
        if positions.is_null() {
            return;
        }
        for index in 0..usize::try_from(count).unwrap_or(0) {
            let position = *positions.add(index) + INNER_AT as c_int;
            let flags = *flags.add(index);
            api!(RedisModule_KeyAtPosWithFlags, ctx, position, flags);
        }
        api!(RedisModule_Free, positions.cast());
        api!(RedisModule_Free, flags.cast());
    }
}
