//! A command that carries another one: which of its arguments are keys, and running the other for the caller.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::os::raw::c_int;
use std::{ptr, slice};

use redis_module::raw;

use super::args::{Arg, Args};
use super::catch::catch;
use super::context::Context;
use crate::decimal;
use crate::error::Error;

/// Where the key of the carrying command itself stands.
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
/// SAFETY: as for `entry::command`.
pub(super) unsafe fn reported_keys(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
    carried_at: usize,
) -> bool {
    // SAFETY: see the module's head.
    if unsafe { api!(RedisModule_IsKeysPositionRequest, ctx) } == 0 {
        return false;
    }
    catch("delivery keys", || {
        // SAFETY: promised by the caller.
        let args = unsafe { Args::new(argv, argc) };
        let own = raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS;
        // SAFETY: the context is one that asks for keys.
        unsafe { api!(RedisModule_KeyAtPosWithFlags, ctx, OWN_KEY, own as c_int) };
        if !ASKING.replace(true) {
            // SAFETY: as above.
            unsafe { report_keys_of(ctx, args.from(carried_at), carried_at) };
            ASKING.set(false);
        }
    });
    true
}

/// The same for a command whose keys follow the number of them at `numkeys_at`. The server asks it only where another one
/// carries it. Of one with a wrong number, there are none.
///
/// SAFETY: as for `entry::command`.
pub(super) unsafe fn reported_numbered_keys(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
    numkeys_at: usize,
) -> bool {
    // SAFETY: see the module's head.
    if unsafe { api!(RedisModule_IsKeysPositionRequest, ctx) } == 0 {
        return false;
    }
    catch("reporting keys", || {
        // SAFETY: promised by the caller.
        let args = unsafe { Args::new(argv, argc) };
        let number = args.get(numkeys_at).map(Arg::bytes);
        let number = number.and_then(decimal::parse).unwrap_or(0);
        let first = numkeys_at + 1;
        let given = (args.len() as u64).saturating_sub(first as u64);
        let keys = if number <= given { number as usize } else { 0 };
        let flags = raw::REDISMODULE_CMD_KEY_RW
            | raw::REDISMODULE_CMD_KEY_ACCESS
            | raw::REDISMODULE_CMD_KEY_UPDATE;
        for position in first..first + keys {
            // SAFETY: the context is one that asks for keys.
            unsafe {
                api!(
                    RedisModule_KeyAtPosWithFlags,
                    ctx,
                    position as c_int,
                    flags as c_int
                )
            };
        }
    });
    true
}

/// Reports the keys of `carried`, whose name is the argument at `carried_at`. A command that the
/// server does not know, or with too few arguments, has none.
///
/// SAFETY: `ctx` is one that asks for keys.
unsafe fn report_keys_of(ctx: *mut raw::RedisModuleCtx, carried: Args<'_>, carried_at: usize) {
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
            let position = *positions.add(index) + carried_at as c_int;
            let flags = *flags.add(index);
            api!(RedisModule_KeyAtPosWithFlags, ctx, position, flags);
        }
        api!(RedisModule_Free, positions.cast());
        api!(RedisModule_Free, flags.cast());
    }
}

/// Redis 7.0's text, instead of NOPERM, if a module runs a command for a user who may not run it.
const ACL_REFUSAL: &[u8] = b"ERR acl verification failed, ";

impl Context<'_> {
    /// Runs `command`, its name first, as the client that sent ours: with its rights, in its database and its protocol,
    /// and replies what it replies. No key of ours may be open, and no borrow held: the command may be one of ours.
    ///
    /// # Errors
    /// [`Error::UnknownCommand`] for a name that no command can have; [`Error::NotInside`] for what the server cannot do.
    pub(crate) fn run_for_caller(&self, command: Args<'_>) -> Result<(), Error> {
        let Some(name) = command.get(0) else {
            return Err(Error::Arity);
        };
        let unknown = |_| Error::UnknownCommand(name.bytes().into());
        let name = CString::new(name.bytes()).map_err(unknown)?;
        if self.breaks_in_script(&name) {
            return Err(Error::NotInside("WAIT in a script"));
        }
        let args = command.from(1).as_slice();
        // `E` makes a refusal an error reply, `!` lets through what the command replicates, `C` asks for the caller's
        // rights, `S` refuses what scripts may not call, `M` what needs memory when there is none; `0` is the caller's
        // protocol.
        // SAFETY: the format names a vector with its length. The reply is ours to free, after it has been passed on.
        unsafe {
            let reply = self.carrying(|| {
                api!(
                    RedisModule_Call,
                    self.as_ptr(),
                    name.as_ptr(),
                    c"vE!CSM0".as_ptr(),
                    args.as_ptr(),
                    args.len(),
                )
            });
            if reply.is_null() {
                return Err(Error::Bug);
            }
            match refused_by_acl(reply) {
                Some(why) => self.reply_error(&format!("NOPERM {why}")),
                None => {
                    api!(RedisModule_ReplyWithCallReply, self.as_ptr(), reply);
                }
            }
            api!(RedisModule_FreeCallReply, reply);
        }
        Ok(())
    }
}

impl Context<'_> {
    /// Valkey 8 stops at an assertion when a script runs WAIT or WAITAOF by way of a module.
    fn breaks_in_script(&self, name: &CStr) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_LUA as c_int != 0
            && self.is_valkey_8()
            && self.original_name(name).is_some_and(|name| {
                name.eq_ignore_ascii_case(b"wait") || name.eq_ignore_ascii_case(b"waitaof")
            })
    }
}

/// The text after [`ACL_REFUSAL`], if the reply begins with it.
///
/// SAFETY: `reply` lives for the call.
unsafe fn refused_by_acl(reply: *mut raw::RedisModuleCallReply) -> Option<String> {
    let error = raw::REDISMODULE_REPLY_ERROR as c_int;
    // SAFETY: promised by the caller; the text belongs to the reply.
    let text = unsafe {
        if api!(RedisModule_CallReplyType, reply) != error {
            return None;
        }
        let mut len = 0;
        let text = api!(RedisModule_CallReplyStringPtr, reply, &raw mut len);
        slice::from_raw_parts(text.cast::<u8>(), len)
    };
    let why = text.strip_prefix(ACL_REFUSAL)?;
    Some(String::from_utf8_lossy(why).into_owned())
}
