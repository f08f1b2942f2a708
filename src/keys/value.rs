//! A lock as the value of a key: what is saved, loaded, and counted as memory.

use std::cell::Cell;

use mortise_core::codec::{self, DecodeError, Effect};
use mortise_core::{Instant, LeaseId, Lock, Token};

use crate::ffi::Source;
use crate::keys::leases;
use crate::state::{self, STATE, State};
use crate::time::clock;

/// The value of a key of type `mort-lock`. Plain data: it may be dropped on any thread.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) lock: Lock,
    /// Where its database's table keeps it; `None` while it does not.
    pub(crate) lease: Cell<Option<LeaseId>>,
    /// With how many holders the table counts it.
    pub(crate) counted: Cell<u32>,
}

impl Value {
    pub(crate) fn new(lock: Lock) -> Self {
        Self {
            lock,
            lease: Cell::new(None),
            counted: Cell::new(0),
        }
    }
}

/// For RDB and DUMP.
pub(crate) fn to_bytes(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode_lock(
        &value.lock,
        state::last_token(),
        &clock::stamp(),
        &mut bytes,
    );
    bytes
}

/// For an AOF without preamble and for slot migration: one effect a hold.
pub(crate) fn to_effects(value: &Value, mut emit: impl FnMut(&[u8])) {
    let stamp = clock::stamp();
    let mut bytes = Vec::new();
    for (owner, stake) in value.lock.holds() {
        bytes.clear();
        let effect = Effect::Put(owner.as_ref(), stake);
        codec::encode_effect(&effect, state::last_token(), &stamp, &mut bytes);
        emit(&bytes);
    }
}

/// Why a saved lock was refused.
#[derive(Debug)]
pub(crate) enum LoadError {
    Decode(DecodeError),
    /// A client brought a token that nobody could have been given here.
    TokenTooHigh(Token),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Decode(error) => error.fmt(f),
            Self::TokenTooHigh(token) => {
                write!(
                    f,
                    "token {} is more than an hour ahead of this server",
                    token.get()
                )
            }
        }
    }
}

/// From RDB, RESTORE or a full sync. The token clock learns of its tokens. What the primary took is never refused for a
/// token: a replica whose clock is behind would lack a lock.
pub(crate) fn from_bytes(bytes: &[u8], source: Source) -> Result<Value, LoadError> {
    let here = clock::stamp();
    let (lock, last) =
        codec::decode_lock(bytes, source.arrival(), &here).map_err(LoadError::Decode)?;
    STATE.with(|state| {
        let mut tokens = state.tokens.borrow_mut();
        let highest = lock.holds().map(|(_, stake)| stake.token).max();
        let mut last = Token::new(last).max(highest);
        if matches!(source, Source::Client | Source::Either) {
            // Whoever may RESTORE must not use the number space up.
            let wall = clock::wall();
            if let (Source::Client, Some(highest)) = (source, highest) {
                tokens
                    .check(highest, wall)
                    .map_err(|_| LoadError::TokenTooHigh(highest))?;
            }
            last = last.min(Some(tokens.bound(wall)));
        }
        if let Some(last) = last {
            tokens.raise(last);
        }
        for (_, stake) in lock.holds() {
            state.note_deadline(stake.deadline);
        }
        note_lateness(state, bytes, &lock, source, here.boot);
        Ok(Value::new(lock))
    })
}

/// Remembers how late the lock may have come, for the day when this server is promoted.
fn note_lateness(state: &State, bytes: &[u8], lock: &Lock, source: Source, now: Instant) {
    match source {
        Source::Sync => {
            if let Some(stamp) = codec::stamp_of_lock(bytes) {
                state.lateness.on_synced(state, &stamp, now);
            }
        }
        Source::ReplicaFile => {
            for (_, stake) in lock.holds() {
                state.lateness.on_file(stake.deadline);
            }
        }
        // Its stamp tells when it was dumped, by whomever.
        Source::Primary | Source::Either => state.lateness.on_unstamped(),
        Source::File | Source::Client => {}
    }
}

/// Bytes of the value and of its entry in the lease order, whose key is `name_len` bytes long.
pub(crate) fn memory(value: &Value, name_len: usize) -> usize {
    let entry = if value.lease.get().is_some() {
        leases::entry_size(name_len)
    } else {
        0
    };
    size_of::<Value>() + value.lock.heap_size() + entry
}
