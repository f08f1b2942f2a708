//! Blocked clients.
//!
//! The server knows only the handle. The layer above (see `handlers`) knows who waits for
//! what and what the reply is. Two rules of the platform hold: a handle is unblocked exactly once, so a [`Blocked`] cannot be copied and
//! unblocking consumes it; and only from a timer (a `CLIENT UNBLOCK` that comes between it and the
//! delivery crashes Redis 7.2 and hangs the client on 7.0), which `waiting::wake` sees to. Time limits are not the server's
//! either: a grant and a server-side timeout in one turn of the event loop crash 7.2, too.

use std::os::raw::{c_int, c_void};

use redis_module::raw;

use super::context::Context;
use super::handlers::{self, BlockedId};
use super::log::catch;

/// A client that the server has blocked for us. Whoever has this is the one who unblocks it.
#[derive(Debug)]
#[must_use = "nothing else unblocks the client"]
pub(crate) struct Blocked(*mut raw::RedisModuleBlockedClient);

impl Context<'_> {
    /// Blocks the client that sent the command. Not in MULTI, scripts or functions. `None` if the server refuses, as
    /// Valkey 9.1 does for a client that is subscribed to a channel.
    pub(crate) fn block(&self) -> Option<Blocked> {
        // SAFETY: the callbacks are ours for as long as the module is loaded. A timeout callback
        // is given although there is no timeout: CLIENT UNBLOCK works only with one.
        unsafe {
            let blocked = api!(
                RedisModule_BlockClient,
                self.as_ptr(),
                Some(on_reply),
                Some(on_timeout),
                Some(on_freed),
                0,
            );
            if blocked.is_null() {
                return None;
            }
            api!(
                RedisModule_SetDisconnectCallback,
                blocked,
                Some(on_disconnect)
            );
            Some(Blocked(blocked))
        }
    }

    /// Nothing can block here: MULTI, a script, a function, or a call by another module.
    pub(crate) fn denies_blocking(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING as c_int != 0
    }
}

fn id_of(handle: *mut raw::RedisModuleBlockedClient) -> BlockedId {
    BlockedId(handle.addr())
}

impl Blocked {
    /// Which client it is.
    pub(crate) fn id(&self) -> BlockedId {
        id_of(self.0)
    }

    /// Unblocks the client; [`Handlers::on_reply`](super::handlers::Handlers) then makes the reply.
    pub(crate) fn unblock(self) {
        // SAFETY: the handle came from `block`, and this consumes it, so it happens once; the server frees the handle only afterwards. The
        // private data is the handle itself, as a number to find the waiter by.
        unsafe { api!(RedisModule_UnblockClient, self.0, self.0.cast()) };
    }
}

/// SAFETY: `ctx` is the context of a callback of a blocked client.
unsafe fn blocked_of(ctx: *mut raw::RedisModuleCtx) -> BlockedId {
    // SAFETY: promised by the caller.
    id_of(unsafe { api!(RedisModule_GetBlockedClientHandle, ctx) })
}

unsafe extern "C" fn on_reply(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    catch("replying to a waiter", || {
        // SAFETY: the server's context for this call.
        let (context, blocked) = unsafe { (Context::new(ctx), blocked_of(ctx)) };
        (handlers::get().on_reply)(&context, blocked);
    });
    raw::REDISMODULE_OK as c_int
}

/// CLIENT UNBLOCK: there is no other timeout.
unsafe extern "C" fn on_timeout(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    catch("unblocking a waiter", || {
        // SAFETY: the server's context for this call.
        let (context, blocked) = unsafe { (Context::new(ctx), blocked_of(ctx)) };
        (handlers::get().on_unblock)(&context, blocked);
    });
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn on_disconnect(
    _ctx: *mut raw::RedisModuleCtx,
    blocked: *mut raw::RedisModuleBlockedClient,
) {
    catch("losing a waiter", || {
        // The callback's own context has no client.
        // SAFETY: the server calls this with its lock held.
        let context = unsafe { Context::detached() };
        let blocked = id_of(blocked);
        (handlers::get().on_disconnect)(&context, blocked);
    });
}

unsafe extern "C" fn on_freed(_ctx: *mut raw::RedisModuleCtx, handle: *mut c_void) {
    catch("forgetting a waiter", || {
        // SAFETY: as above.
        let context = unsafe { Context::detached() };
        let blocked = id_of(handle.cast());
        (handlers::get().on_freed)(&context, blocked);
    });
}
