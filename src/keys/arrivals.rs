//! Locks in files and payloads: their bytes, and what happens when one comes to its key by COPY, RESTORE or a load. They enter the lease
//! order, and those that clients have restored are replicated once more. A load may bring a million, so this is not urgent.
//!
//! In one case a timer would be too late. After a rename a restored lock is no longer under its old
//! name, and no event names the new one. But what a callback replicates goes out ahead of the
//! command that it is called from, see [`replicate_again_ahead`].

use std::cell::{LazyCell, RefCell};
use std::collections::BTreeSet;

use mortise_core::codec::{self, Effect};
use mortise_core::{HomeKey, Instant, KeyId, KeyRef, Token};

use crate::ffi::{Access, Context, Emit, MainThread, Source, Value};
use crate::keys::{effect, leases, tokens};
use crate::time::{self, clock};
use crate::work::queue::{self, Work};

/// Locks that came by RESTORE, whose leases have to be replicated.
static RESTORED: MainThread<LazyCell<RefCell<BTreeSet<HomeKey>>>> =
    MainThread::new(LazyCell::new(RefCell::default));

/// A lock came to a key by COPY.
pub(crate) fn on_copied(ctx: &Context<'_>, key: KeyRef<'_>) {
    // It may be a copy of one that was restored just now.
    let is_restored = !RESTORED.get(ctx).borrow().is_empty();
    mark(ctx, key, is_restored);
}

/// A lock that was read from bytes came to a key.
pub(crate) fn on_lock_loaded(ctx: &Context<'_>, key: KeyRef<'_>, source: Source) {
    mark(ctx, key, source == Source::Client);
}

/// `is_restored`: its leases have to be replicated.
fn mark(ctx: &Context<'_>, key: KeyRef<'_>, is_restored: bool) {
    if is_restored {
        let home = queue::home_key(ctx, key);
        RESTORED.get(ctx).borrow_mut().insert(home);
    }
    queue::push_key(ctx, key, Work::Enter);
}

/// Replicates a restored lock again, ahead of the command that takes it from its key: a RENAME then
/// takes the leases along.
pub(crate) fn replicate_again_ahead(ctx: &Context<'_>, key: KeyRef<'_>, value: &Value) {
    let restored = RESTORED.get(ctx).borrow();
    if restored.is_empty()
        || !restored.contains(&queue::home_key(ctx, key))
        || !time::is_primary(ctx)
        || ctx.avoid_replication_traffic()
    {
        return;
    }
    let selected = ctx.db();
    ctx.select(key.db);
    effect::replicate_again(ctx, key.name, &value.lock, clock::now());
    ctx.select(selected);
}

/// Takes a lock that came into the lease order, and replicates its leases again if a client restored it. Returns its key.
pub(crate) fn enter(ctx: &Context<'_>, home: &HomeKey) -> KeyId {
    let is_restored = RESTORED.get(ctx).borrow_mut().remove(home);
    let (key, now) = (queue::key_of(ctx, home), clock::now());
    ctx.select(key.db);
    let mut opened = ctx.open_named(&key.name, Access::Read);
    if let Some(value) = opened.value() {
        leases::follow(ctx, key.as_ref(), value, now);
        if is_restored && time::is_primary(ctx) {
            effect::replicate_again(ctx, &key.name, &value.lock, now);
        }
    }
    drop(opened);
    key
}

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
    let deadlines = lock.holds().map(|(_, stake)| stake.deadline);
    let deadline = deadlines.max().unwrap_or_default();
    time::note_deadline(ctx, deadline);
    note_lateness(ctx, bytes, deadline, source, here.boot);
    Ok(Value::new(lock))
}

/// Remembers how late a lock may have come, for the day when this server is promoted. Its last lease ends at `deadline`.
fn note_lateness(ctx: &Context<'_>, bytes: &[u8], deadline: Instant, source: Source, now: Instant) {
    match source {
        Source::Sync => {
            if let Some(stamp) = codec::stamp_of_lock(bytes) {
                time::lateness(ctx).on_synced(&stamp, time::last_deadline(ctx), now);
            }
        }
        Source::ReplicaFile => time::lateness(ctx).on_file(deadline),
        // Its stamp shows when it was dumped, on whatever server.
        Source::Primary | Source::Either => time::lateness(ctx).on_unstamped(),
        Source::File | Source::Client => {}
    }
}
