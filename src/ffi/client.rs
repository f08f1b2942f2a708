//! The client for which a command runs, blocked clients, and which names of keys may be shown to an ACL user that did not name them itself.
//!
//! Of a blocked client the server knows only the handle. The layer above (see `handlers`) knows who waits for
//! what and what the reply is. Two rules of the platform hold: a handle is unblocked exactly once, so a [`Blocked`] cannot be copied and
//! unblocking consumes it; and only from a timer (a `CLIENT UNBLOCK` that comes between it and the
//! delivery crashes Redis 7.2 and hangs the client on 7.0). Time limits are not the server's
//! either: a grant and a server-side timeout in one turn of the event loop crash 7.2, too.

use std::cell::Cell;
use std::io;
use std::os::raw::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use mortise_core::{Db, KeyRef};
use redis_module::{RedisString, raw};

use super::args::own_string;
use super::call::Reply;
use super::context::{Context, MainThread, number_of};
use super::handlers::{self, BlockedId};
use super::log::catch;

/// The connection for which a carried command runs now, 0 if unknown.
static CARRIED_FOR: MainThread<Cell<Option<u64>>> = MainThread::new(Cell::new(None));

impl Context<'_> {
    /// Whether a command runs now that another one carries.
    pub(crate) fn runs_carried_command(&self) -> bool {
        CARRIED_FOR.get(self).get().is_some()
    }

    /// Does `run`, which runs a command that the one of this context carries.
    pub(super) fn carrying<T>(&self, run: impl FnOnce() -> T) -> T {
        CARRIED_FOR.get(self).set(Some(self.client_id()));
        let outcome = run();
        CARRIED_FOR.get(self).set(None);
        outcome
    }

    /// The connection that sent the command; 0 if there is none, or a script stands between.
    pub(crate) fn client_id(&self) -> u64 {
        // The server runs a carried command for a client of its own.
        if let Some(id) = CARRIED_FOR.get(self).get() {
            return id;
        }
        // A script's client has an id, too, but never that of a connection.
        if self.flags() & raw::REDISMODULE_CTX_FLAGS_LUA as c_int != 0 {
            return 0;
        }
        // SAFETY: see the module's head.
        unsafe { api!(RedisModule_GetClientId, self.as_ptr()) }
    }

    /// The ACL user that runs the command, a script's caller in a script; empty if a module runs it for no user.
    pub(crate) fn user_name(&self) -> Vec<u8> {
        // SAFETY: see the module's head.
        let id = unsafe { api!(RedisModule_GetClientId, self.as_ptr()) };
        let name = self.user_of_client(id);
        if !name.is_empty() || !self.has_user() {
            return name;
        }
        // SAFETY: as above. Redis 7.0 crashes if there is no current user to return.
        unsafe { self.taken(api!(RedisModule_GetCurrentUserName, self.as_ptr())) }
    }

    /// The ACL user of a connection; empty if no connection has this id.
    pub(crate) fn user_of_client(&self, id: u64) -> Vec<u8> {
        // SAFETY: see the module's head.
        unsafe { self.taken(api!(RedisModule_GetClientUserNameById, self.as_ptr(), id)) }
    }

    /// Whether a connection has this id.
    pub(crate) fn is_connected(&self, id: u64) -> bool {
        // SAFETY: see the module's head. With a null pointer nothing is written.
        let found = unsafe { api!(RedisModule_GetClientInfoById, ptr::null_mut(), id) };
        found == raw::REDISMODULE_OK as c_int
    }

    /// The bytes of a string, which this frees; none if it is null.
    ///
    /// SAFETY: `string` is null or ours to free.
    unsafe fn taken(&self, string: *mut raw::RedisModuleString) -> Vec<u8> {
        if string.is_null() {
            return Vec::new();
        }
        let string = RedisString::from_redis_module_string(self.as_ptr(), string);
        string.as_slice().to_vec()
    }

    /// True if the command runs for an ACL user. To find out, it calls a command that does not exist: without a user that call fails
    /// earlier.
    fn has_user(&self) -> bool {
        // SAFETY: the format takes no arguments. Without `E` what fails is null, but a reply would be this call's.
        let reply = unsafe {
            Reply::new(api!(
                RedisModule_Call,
                self.as_ptr(),
                c"".as_ptr(),
                c"C".as_ptr()
            ))
        };
        if reply.is_some() {
            return true;
        }
        io::Error::last_os_error().raw_os_error() != Some(libc::ENOTSUP)
    }
}

/// The user that a command runs for, or that a reply goes to.
#[derive(Debug)]
pub(crate) enum Viewer {
    /// No user: a link to the primary, or the module itself. It may see everything.
    All,
    Of(NonNull<raw::RedisModuleUser>),
    /// A user that no longer exists.
    None,
}

impl Context<'_> {
    /// The ACL user that runs the command, a script's caller in a script.
    pub(crate) fn viewer(&self) -> Viewer {
        Viewer::named(&self.user_name())
    }
}

impl Viewer {
    /// The ACL user `name`; an empty name stands for no user, and may see all.
    pub(crate) fn named(name: &[u8]) -> Self {
        if name.is_empty() {
            return Self::All;
        }
        let name = own_string(name);
        // SAFETY: the string lives for the call; the user that is found is freed once, in `drop`.
        let user = unsafe { api!(RedisModule_GetModuleUserFromUserName, name.inner) };
        NonNull::new(user).map_or(Self::None, Self::Of)
    }

    /// Whether the user may read the key.
    pub(crate) fn may_read(&self, key: KeyRef<'_>) -> bool {
        self.allows(key, raw::REDISMODULE_CMD_KEY_ACCESS as c_int)
    }

    /// Whether the user may do anything at all with the key.
    pub(crate) fn may_name(&self, key: KeyRef<'_>) -> bool {
        self.allows(key, 0)
    }

    fn allows(&self, key: KeyRef<'_>, access: c_int) -> bool {
        let user = match self {
            Self::All => return true,
            Self::None => return false,
            Self::Of(user) => user.as_ptr(),
        };
        let name = own_string(key.name);
        // SAFETY: the user lives for as long as this does, the string for the call.
        let checked = unsafe { api!(RedisModule_ACLCheckKeyPermissions, user, name.inner, access) };
        checked == raw::REDISMODULE_OK as c_int && may_use(user, key.db)
    }
}

/// From Valkey 9.1 on a user may be kept out of databases. `user` lives for the call.
fn may_use(user: *mut raw::RedisModuleUser, db: Db) -> bool {
    check_database().is_none_or(|check| {
        let (mut reason, db) = (0, number_of(db));
        let name = own_string(LISTING);
        let mut command = [name.inner];
        // SAFETY: the user and the command live for the call.
        let checked = unsafe { check(user, command.as_mut_ptr(), 1, db, &raw mut reason) };
        // If the command was refused, that says nothing about the database.
        checked == raw::REDISMODULE_OK as c_int || reason != FOR_DATABASE
    })
}

impl Drop for Viewer {
    fn drop(&mut self) {
        if let Self::Of(user) = self {
            // SAFETY: it was made by `named`, and nobody else has it.
            unsafe { api!(RedisModule_FreeModuleUser, user.as_ptr()) };
        }
    }
}

/// A command without a key, to check the rights to a database alone.
const LISTING: &[u8] = b"LOCK.TOP";

/// Why a command is not allowed: the user has no rule that allows anything in that database.
const FOR_DATABASE: c_int = 4;

/// May a user run a command in a database, and if not, why.
type CheckPermissions = unsafe extern "C" fn(
    *mut raw::RedisModuleUser,
    *mut *mut raw::RedisModuleString,
    c_int,
    c_int,
    *mut c_int,
) -> c_int;

/// The server's own function, if it has one. Not in the crate's header.
fn check_database() -> Option<CheckPermissions> {
    static FOUND: OnceLock<Option<CheckPermissions>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut found: Option<CheckPermissions> = None;
        let name = c"ValkeyModule_ACLCheckPermissions";
        // SAFETY: the server stores a function of this type where it has one of this name, and nothing else.
        unsafe { api!(RedisModule_GetApi, name.as_ptr(), (&raw mut found).cast()) };
        found
    })
}

/// A client that the server has blocked for the module. The owner of this value has to unblock it.
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

    /// Whether nothing can block here: in MULTI, a script, a function, or a call by another module.
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
