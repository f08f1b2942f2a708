//! A call's context: databases, flags, effects, logs, replies, and the state of the module, which only the holder of the server's lock
//! reaches.

use std::ffi::{CStr, c_long};
use std::marker::PhantomData;
use std::os::raw::c_int;

use mortise_core::{Db, KeyRef};
use redis_module::raw;

use super::args::{Arg, own_string};
use super::log;

/// The context of one call of the server into the module.
#[derive(Debug)]
pub(crate) struct Context<'c> {
    ctx: *mut raw::RedisModuleCtx,
    call: PhantomData<&'c ()>,
}

impl Context<'_> {
    /// SAFETY: `ctx` is a context that lives for `'c`, and this thread holds the server's lock.
    pub(super) unsafe fn new(ctx: *mut raw::RedisModuleCtx) -> Self {
        Self {
            ctx,
            call: PhantomData,
        }
    }

    /// The context that is kept from load time on, for callbacks that get none. Its database is the one that was selected last.
    ///
    /// SAFETY: this thread holds the server's lock, as in every callback but `free`, and does not pass the context on.
    ///
    /// # Panics
    /// Before the module has been loaded.
    pub(super) unsafe fn detached() -> Context<'static> {
        let ctx = log::detached();
        assert!(!ctx.is_null(), "the module has not been loaded");
        Context {
            ctx,
            call: PhantomData,
        }
    }

    /// Calls `act` with the context that outlasts this call.
    pub(crate) fn with_detached<T>(&self, act: impl FnOnce(&Context<'_>) -> T) -> T {
        // SAFETY: whoever has a context holds the server's lock, and `act` cannot keep its own.
        act(&unsafe { Self::detached() })
    }

    pub(super) fn as_ptr(&self) -> *mut raw::RedisModuleCtx {
        self.ctx
    }

    /// The database in use.
    pub(crate) fn db(&self) -> Db {
        // SAFETY: see the module's head.
        db_of(unsafe { api!(RedisModule_GetSelectedDb, self.ctx) })
    }

    /// The key of that name in the database in use.
    pub(crate) fn key<'a>(&self, name: Arg<'a>) -> KeyRef<'a> {
        let (db, name) = (self.db(), name.bytes());
        KeyRef { db, name }
    }

    /// Uses database `db` from here on.
    pub(crate) fn select(&self, db: Db) {
        // SAFETY: an index out of range is refused by the server.
        unsafe { api!(RedisModule_SelectDb, self.ctx, number_of(db)) };
    }

    pub(super) fn flags(&self) -> c_int {
        // SAFETY: see the module's head.
        unsafe { api!(RedisModule_GetContextFlags, self.ctx) }
    }

    /// Whether the server replicates from another one.
    pub(crate) fn is_replica(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_SLAVE as c_int != 0
    }

    /// Whether the server replicates from another one; also true if it does not know yet: a cluster's node learns of its
    /// primary only after it has loaded its files.
    pub(crate) fn may_be_replica(&self) -> bool {
        self.is_replica() || self.is_cluster()
    }

    /// Whether the command came from the primary or from the AOF.
    pub(crate) fn is_replicated(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_REPLICATED as c_int != 0
    }

    /// Whether the server loads its data, from a file or from its primary.
    pub(crate) fn is_loading(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_LOADING as c_int != 0
    }

    /// Whether the server gets all data from its primary.
    pub(crate) fn is_syncing(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_REPLICA_IS_TRANSFERRING as c_int != 0
    }

    /// Whether the server appends to an AOF.
    pub(crate) fn has_aof(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_AOF as c_int != 0
    }

    /// Whether the server runs in cluster mode.
    pub(crate) fn is_cluster(&self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_CLUSTER as c_int != 0
    }

    /// Whether writes are held back (a pause, a failover, a shutdown): replicating now would crash.
    pub(crate) fn avoid_replication_traffic(&self) -> bool {
        // SAFETY: no arguments.
        unsafe { api!(RedisModule_AvoidReplicaTraffic) != 0 }
    }

    /// Sends `command key effect` to the AOF and to every replica.
    pub(crate) fn replicate(&self, command: &CStr, key: &[u8], effect: &[u8]) {
        self.replicate_as(c"bb", command, key, effect);
    }

    /// Sends `command key` to the AOF and to every replica.
    pub(crate) fn replicate_plain(&self, command: &CStr, key: &[u8]) {
        self.replicate_as(c"b", command, key, b"");
    }

    /// Sends an effect on no key to every replica, and not to the AOF.
    pub(crate) fn replicate_to_replicas(&self, command: &CStr, effect: &[u8]) {
        self.replicate_as(c"Abb", command, b"", effect);
    }

    fn replicate_as(&self, format: &CStr, command: &CStr, key: &[u8], effect: &[u8]) {
        let (command, format) = (command.as_ptr(), format.as_ptr());
        let (key, len) = (key.as_ptr(), key.len());
        let (effect, size) = (effect.as_ptr(), effect.len());
        // SAFETY: the formats name at most two buffers, each with its length; `A` keeps the effect from the AOF.
        unsafe {
            api!(
                RedisModule_Replicate,
                self.ctx,
                command,
                format,
                key,
                len,
                effect,
                size
            )
        };
    }

    /// Sends the command as it came.
    pub(crate) fn replicate_verbatim(&self) {
        // SAFETY: see the module's head.
        unsafe { api!(RedisModule_ReplicateVerbatim, self.ctx) };
    }

    /// Notifies clients that WATCH or track the key. The server does not do it by itself, because a
    /// key may be opened for writing and left unchanged.
    pub(crate) fn signal_modified(&self, key: Arg<'_>) {
        // SAFETY: the string outlives the call.
        unsafe { api!(RedisModule_SignalModifiedKey, self.ctx, key.as_ptr()) };
    }

    /// Notifies the subscribers of key-space events of class `d`.
    pub(crate) fn notify(&self, event: &CStr, key: Arg<'_>) {
        let class = raw::REDISMODULE_NOTIFY_MODULE as c_int;
        // SAFETY: both strings outlive the call.
        unsafe {
            api!(
                RedisModule_NotifyKeyspaceEvent,
                self.ctx,
                class,
                event.as_ptr(),
                key.as_ptr()
            )
        };
    }

    /// Notifies the subscribers of an event of a key whose name is not an argument.
    pub(crate) fn notify_named(&self, event: &CStr, key: &[u8]) {
        let name = own_string(key);
        // SAFETY: the string outlives the call.
        self.notify(event, unsafe { Arg::new(name.inner) });
    }

    /// Writes a warning to the server's log.
    pub(crate) fn warn(&self, line: &str) {
        // SAFETY: the context lives for as long as this does.
        unsafe { log::write(self.ctx, log::WARNING, line) };
    }

    /// Writes a notice to the server's log.
    pub(crate) fn notice(&self, line: &str) {
        // SAFETY: as above.
        unsafe { log::write(self.ctx, log::NOTICE, line) };
    }
}

/// The database that the server means by `number`, which is not negative.
pub(super) fn db_of(number: c_int) -> Db {
    Db(number.unsigned_abs())
}

/// The number by which the server knows the database.
pub(super) fn number_of(db: Db) -> c_int {
    c_int::try_from(db.0).unwrap_or(c_int::MAX)
}

impl Context<'_> {
    pub(crate) fn reply_integer(&self, value: i64) {
        // SAFETY: see the module's head; the same for every reply below.
        unsafe { api!(RedisModule_ReplyWithLongLong, self.as_ptr(), value) };
    }

    pub(crate) fn reply_null(&self) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_ReplyWithNull, self.as_ptr()) };
    }

    pub(crate) fn reply_bytes(&self, bytes: &[u8]) {
        // SAFETY: the server copies the bytes.
        unsafe {
            let start = bytes.as_ptr().cast();
            api!(
                RedisModule_ReplyWithStringBuffer,
                self.as_ptr(),
                start,
                bytes.len()
            )
        };
    }

    pub(crate) fn reply_text(&self, text: &CStr) {
        self.reply_bytes(text.to_bytes());
    }

    /// A number in a map.
    pub(crate) fn reply_field(&self, field: &CStr, value: i64) {
        self.reply_text(field);
        self.reply_integer(value);
    }

    /// `len` replies follow.
    pub(crate) fn reply_array(&self, len: usize) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_ReplyWithArray, self.as_ptr(), len as c_long) };
    }

    /// `len` pairs of replies follow; a flat array in RESP2.
    pub(crate) fn reply_map(&self, len: usize) {
        // SAFETY: as above.
        unsafe { api!(RedisModule_ReplyWithMap, self.as_ptr(), len as c_long) };
    }

    /// An error: its code, a space and a text, on one line.
    pub(crate) fn reply_error(&self, text: &str) {
        let text = log::c_string(&text.replace(['\r', '\n'], " "));
        // SAFETY: the server copies the text.
        unsafe { api!(RedisModule_ReplyWithError, self.as_ptr(), text.as_ptr()) };
    }
}

/// A value that only the holder of the server's lock reaches: state of the module, kept beside the code that uses it.
///
/// Every caller of the module holds the server's lock: the event loop, or a thread of another
/// module that has taken it (`RM_ThreadSafeContextLock`). So one call runs at a time, whatever its
/// thread. A [`Context`] exists only within such a call, and having one proves the lock: state
/// needs no lock of its own. (`free` of a value may run without the server's lock; it gets no
/// context.)
///
/// Every part has a cell of its own, and no borrow is held across a call into the server, because such a call may come
/// back through a callback.
pub(crate) struct MainThread<T>(T);

// SAFETY: nothing but `get` gives the value away, and `get` takes a context, which exists only while its thread holds the
// server's lock and is not sent. Taking that lock orders the accesses of different threads, so even a value that is not
// `Send` (an `Rc`) is used by one thread at a time. A static is never dropped.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value; `ctx` shows that this thread holds the server's lock.
    pub(crate) fn get(&'static self, _ctx: &Context<'_>) -> &'static T {
        &self.0
    }
}
