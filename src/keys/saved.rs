//! The bytes of a lock in files, and back.

use mortise_core::codec::{self, Effect};
use mortise_core::{Instant, Lock, Token};

use crate::ffi::{Context, Emit, Source, Value};
use crate::keys::tokens;
use crate::time::{self, clock};

/// For RDB and DUMP.
pub(crate) fn to_bytes(ctx: &Context<'_>, value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec::encode_lock(&value.lock, tokens::last(ctx), &clock::stamp(), &mut bytes);
    bytes
}

/// For an AOF without preamble and for slot migration: one effect a hold.
pub(crate) fn to_effects(ctx: &Context<'_>, value: &Value, emit: &mut Emit<'_>) {
    let stamp = clock::stamp();
    let mut bytes = Vec::new();
    for (owner, stake) in value.lock.holds() {
        bytes.clear();
        let effect = Effect::Put(owner.as_ref(), stake);
        codec::encode_effect(&effect, tokens::last(ctx), &stamp, &mut bytes);
        emit(&bytes);
    }
}

/// Reads a lock from RDB, RESTORE or a full sync, and raises the token clock to its tokens. A replica never refuses a token that its primary has accepted:
/// with a clock that is behind it would lack a lock.
pub(crate) fn from_bytes(ctx: &Context<'_>, bytes: &[u8], source: Source) -> Result<Value, String> {
    let here = clock::stamp();
    let (lock, last) =
        codec::decode_lock(bytes, source.arrival(), &here).map_err(|error| error.to_string())?;
    let mut tokens = tokens::clock(ctx).borrow_mut();
    let highest = lock.holds().map(|(_, stake)| stake.token).max();
    let mut last = Token::new(last).max(highest);
    if matches!(source, Source::Client | Source::Either) {
        // A client that may RESTORE must not use up the numbers.
        let wall = clock::wall();
        if let (Source::Client, Some(highest)) = (source, highest) {
            let checked = tokens.check(highest, wall);
            checked.map_err(|_| {
                let token = highest.get();
                format!("token {token} is more than an hour ahead of this server")
            })?;
        }
        last = last.min(Some(tokens.bound(wall)));
    }
    if let Some(last) = last {
        tokens.raise(last);
    }
    for (_, stake) in lock.holds() {
        time::note_deadline(ctx, stake.deadline);
    }
    note_lateness(ctx, bytes, &lock, source, here.boot);
    Ok(Value::new(lock))
}

/// Remembers how late the lock may have come, for the day when this server is promoted.
fn note_lateness(ctx: &Context<'_>, bytes: &[u8], lock: &Lock, source: Source, now: Instant) {
    match source {
        Source::Sync => {
            if let Some(stamp) = codec::stamp_of_lock(bytes) {
                time::lateness(ctx).on_synced(ctx, &stamp, time::last_deadline(ctx), now);
            }
        }
        Source::ReplicaFile => {
            for (_, stake) in lock.holds() {
                time::lateness(ctx).on_file(stake.deadline);
            }
        }
        // Its stamp shows when it was dumped, on whatever server.
        Source::Primary | Source::Either => time::lateness(ctx).on_unstamped(),
        Source::File | Source::Client => {}
    }
}
