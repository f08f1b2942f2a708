//! The client for which a command runs.

use std::cell::Cell;
use std::io;
use std::os::raw::c_int;
use std::ptr;

use redis_module::raw;

use super::args::Arg;
use super::call::Reply;
use super::context::Context;
use super::main_thread::MainThread;

static CONNECTIONS: MainThread<Connections> = MainThread::new(Connections::new());

/// The connection for which a carried command runs now, 0 if unknown.
static CARRIED_FOR: MainThread<Cell<Option<u64>>> = MainThread::new(Cell::new(None));

/// Ids of clients that are connections, not scripts: asking the server costs more than a search
/// here. An id is never given twice, so an entry stays true.
struct Connections([Cell<u64>; Self::ROOM]);

impl Connections {
    const ROOM: usize = 256;

    const fn new() -> Self {
        Self([const { Cell::new(0) }; Self::ROOM])
    }

    /// True if `id` is one of them; 0 never is.
    fn knows(&self, id: u64) -> bool {
        id != 0 && self.place(id).get() == id
    }

    /// Adds `id`, and forgets another one that has the same place.
    fn learn(&self, id: u64) {
        self.place(id).set(id);
    }

    fn place(&self, id: u64) -> &Cell<u64> {
        &self.0[id as usize % Self::ROOM]
    }
}

impl Context<'_> {
    /// A command that another one carries runs now.
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
        // SAFETY: see the module's head.
        let id = unsafe { api!(RedisModule_GetClientId, self.as_ptr()) };
        if CONNECTIONS.get(self).knows(id) {
            return id;
        }
        // A script's client has an id, too, but never that of a connection.
        if self.flags() & raw::REDISMODULE_CTX_FLAGS_LUA as c_int != 0 {
            return 0;
        }
        CONNECTIONS.get(self).learn(id);
        id
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
        // SAFETY: promised by the caller; the bytes are copied before.
        unsafe {
            let bytes = Arg::new(string).bytes().to_vec();
            api!(RedisModule_FreeString, self.as_ptr(), string);
            bytes
        }
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
