//! A command that carries another one: running the other for the caller.

use std::ffi::CString;
use std::os::raw::c_int;

use redis_module::raw;

use super::args::Args;
use super::call::Reply;
use super::context::Context;
use crate::error::{Error, shown};

/// Redis 7.0's text, instead of NOPERM, if a module runs a command for a user who may not run it.
const ACL_REFUSAL: &[u8] = b"ERR acl verification failed, ";

impl Context<'_> {
    /// Runs `command`, its name first, as the client that sent ours: with its rights, in its database and its protocol,
    /// and replies what it replies. No key of ours may be open, and no borrow held: the command may be one of ours.
    ///
    /// # Errors
    /// An unknown command for a name that no command can have; what the server cannot do.
    pub(crate) fn run_for_caller(&self, command: Args<'_>) -> Result<(), Error> {
        let Some(name) = command.get(0) else {
            return Err(Error::BUG);
        };
        let unknown = |_| Error::new(format!("ERR unknown command {}", shown(name.bytes())));
        let name = CString::new(name.bytes()).map_err(unknown)?;
        if self.breaks_in_script(command) {
            return Err(Error::not_inside("WAIT in a script"));
        }
        let args = command.from(1).as_slice();
        // `E` makes a refusal an error reply, `!` lets through what the command replicates, `C` asks for the caller's
        // rights, `S` refuses what scripts may not call, `M` what needs memory when there is none; `0` is the caller's
        // protocol.
        // SAFETY: the format names a vector with its length. The reply is this call's, and freed after it has been passed on.
        unsafe {
            let reply = self.carrying(|| {
                Reply::new(api!(
                    RedisModule_Call,
                    self.as_ptr(),
                    name.as_ptr(),
                    c"vE!CSM0".as_ptr(),
                    args.as_ptr(),
                    args.len(),
                ))
            });
            let Some(reply) = reply else {
                return Err(Error::BUG);
            };
            let error = reply.error();
            match error
                .as_ref()
                .and_then(|error| error.strip_prefix(ACL_REFUSAL))
            {
                Some(why) => {
                    self.reply_error(&format!("NOPERM {}", String::from_utf8_lossy(why)));
                }
                None => {
                    api!(
                        RedisModule_ReplyWithCallReply,
                        self.as_ptr(),
                        reply.as_ptr()
                    );
                }
            }
        }
        Ok(())
    }
}

impl Context<'_> {
    /// Valkey 8 stops at an assertion when a script runs WAIT or WAITAOF by way of a module.
    fn breaks_in_script(&self, command: Args<'_>) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_LUA as c_int != 0
            && self.is_valkey_8()
            && waits_for_replicas(command)
    }
}

/// Whether `command` is WAIT or WAITAOF, by whatever name the configuration gave it: a user's rights name commands as the server does.
fn waits_for_replicas(command: Args<'_>) -> bool {
    let strings = command.as_slice();
    // SAFETY: the user is made and freed here. The strings live for the call, which does not change them.
    unsafe {
        let user = api!(RedisModule_CreateModuleUser, c"waits".as_ptr());
        for right in [c"+wait", c"+waitaof"] {
            api!(RedisModule_SetModuleUserACL, user, right.as_ptr());
        }
        let (command, len) = (strings.as_ptr().cast_mut(), strings.len() as c_int);
        let may = api!(RedisModule_ACLCheckCommandPermissions, user, command, len);
        api!(RedisModule_FreeModuleUser, user);
        may == raw::REDISMODULE_OK as c_int
    }
}
