//! What the layers above do when the server calls: handed down once, when the module loads, so that lower layers need not know them.

use std::ffi::CStr;
use std::sync::OnceLock;

use mortise_core::{Db, KeyRef};

use super::context::Context;
use super::value::{Source, Value};

static HANDLERS: OnceLock<&'static Handlers> = OnceLock::new();

/// At load time: hands the handlers down.
pub(super) fn set(handlers: &'static Handlers) {
    HANDLERS.get_or_init(|| handlers);
}

/// The handlers. The server calls nothing of the module before it is loaded.
///
/// # Panics
/// If it does.
pub(super) fn get() -> &'static Handlers {
    HANDLERS.get().expect("the module has not been loaded")
}

/// The handlers of all callbacks. Those for values must not write, replicate or ask the server.
#[derive(Debug)]
pub(crate) struct Handlers {
    /// The module has been registered.
    pub(crate) on_load: fn(&Context<'_>),
    pub(crate) on_alarm: fn(&Context<'_>, Alarm),
    pub(crate) on_event: fn(&Context<'_>, Event),
    /// The server asks for the reply to a client that was unblocked.
    pub(crate) on_reply: fn(&Context<'_>, BlockedId),
    /// CLIENT UNBLOCK: a reply has to be written.
    pub(crate) on_unblock: fn(&Context<'_>, BlockedId),
    /// A blocked client is gone.
    pub(crate) on_disconnect: fn(&Context<'_>, BlockedId),
    /// The server no longer needs the handle of a blocked client.
    pub(crate) on_freed: fn(&Context<'_>, BlockedId),
    /// The module's fields of INFO, and the value of each on one line.
    pub(crate) info: fn(&Context<'_>) -> Vec<(String, String)>,
    /// The command that carries the effects of a lock in a rewritten AOF.
    pub(crate) effect: &'static CStr,
    /// A lock for RDB and DUMP.
    pub(crate) to_bytes: fn(&Context<'_>, &Value) -> Vec<u8>,
    /// A lock for an AOF without preamble and for slot migration: one effect a hold.
    pub(crate) to_effects: fn(&Context<'_>, &Value, &mut Emit<'_>),
    /// A lock from RDB, RESTORE or a full sync, or why the bytes are refused, for the server's log.
    pub(crate) from_bytes: fn(&Context<'_>, &[u8], Source) -> Result<Value, String>,
    /// A lock that was read from bytes has come to the key.
    pub(crate) on_loaded: fn(&Context<'_>, KeyRef<'_>, Source),
    /// A lock has come to the key by COPY.
    pub(crate) on_copied: fn(&Context<'_>, KeyRef<'_>),
    /// The key lost its lock, or the lock its key (RENAME, MOVE).
    pub(crate) on_unlinked: fn(&Context<'_>, KeyRef<'_>, &Value),
    /// Bytes that the value takes whose key has a name of so many bytes.
    pub(crate) memory: fn(&Value, usize) -> usize,
    /// The last token handed out or seen, 0 for none.
    pub(crate) last_token: fn(&Context<'_>) -> u64,
    /// Takes over the last token of a file. False if it cannot be one.
    pub(crate) load_last_token: fn(&Context<'_>, u64) -> bool,
}

/// Takes one effect.
pub(crate) type Emit<'a> = dyn FnMut(&[u8]) + 'a;

/// What a timer is for. Passed as a number, so that no pointer has to be kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// Every 100 ms: leases that are over.
    Sweep,
    /// At once, or after a pause between two slices: queued work.
    EndOfTurn,
    /// When a waiter's time is up, or a lock with waiters loses a hold.
    Due,
}

impl Alarm {
    /// In the order of their numbers.
    pub(crate) const ALL: [Self; 3] = [Self::Sweep, Self::EndOfTurn, Self::Due];
}

/// Which blocked client it is. Callbacks of the server name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockedId(pub(super) usize);

/// Something happened to the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// It became a primary or a replica.
    Role { primary: bool },
    /// The database, or all of them, is about to be emptied.
    Flush { db: Option<Db> },
    /// Two databases have changed places.
    SwapDb(Db, Db),
    /// All data is about to come anew, from the primary.
    Syncing,
    /// A load is complete.
    Loaded,
    /// The periodic tick.
    Cron,
    /// A child was forked, to save, to rewrite or to sync a replica.
    Forked,
    /// A setting has changed.
    Config,
}
