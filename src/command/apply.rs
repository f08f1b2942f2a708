//! `LOCK.APPLY key effect`: a effect that another server, or this one before, has decided.
//!
//! It decides nothing: no expiry, no queue, no clock.

use mortise_core::codec::{self, Arrival, Effect};
use mortise_core::{Instant, Lock};

use crate::error::Error;
use crate::ffi::{Access, Arg, Args, Command, Context, Docs, Keys, Value};
use crate::keys::{effect, leases, tokens};
use crate::time::{self, clock};
use crate::work::queue;

pub(crate) struct Apply;

impl Command for Apply {
    const DOCS: Docs = Docs {
        name: "LOCK.APPLY",
        usage: "key effect",
        summary: c"Internal: carries effects to replicas and into the AOF.",
        complexity: c"O(log N) with N the number of holders",
        flags: "write",
        keys: Keys::Write,
    };

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let loading = ctx.is_loading();
        if !loading && !ctx.is_replicated() {
            return Err(Error::internal(Self::DOCS.name));
        }
        let (Some(name), Some(bytes)) = (args.get(1), args.get(2)) else {
            return Err(Error::bad_effect("it is missing"));
        };
        // Commands that come while the server loads come from the AOF.
        let arrival = match (loading, ctx.may_be_replica()) {
            (false, _) => Arrival::Live,
            (true, false) => Arrival::File,
            (true, true) => Arrival::ReplicaFile,
        };
        let here = clock::stamp();
        let (effect, last) = codec::decode_effect(bytes.bytes(), arrival, &here)
            .map_err(|error| Error::bad_effect(&error.to_string()))?;
        tokens::load(ctx, last);
        if !matches!(effect, Effect::Clock | Effect::Heartbeat(_)) {
            apply(ctx, name, &effect, here.boot)?;
        }
        note_lateness(ctx, bytes.bytes(), &effect, arrival, here.boot);
        // Only replicas use a heartbeat, and replicas of a replica get it from the primary's stream.
        if !loading && !matches!(effect, Effect::Heartbeat(_)) {
            effect::replicate_applied(ctx, name, &effect, &here);
        }
        ctx.reply_null();
        Ok(())
    }
}

/// Remembers how late the effect may have come, for the day when this server is promoted.
fn note_lateness(
    ctx: &Context<'_>,
    bytes: &[u8],
    effect: &Effect<'_>,
    arrival: Arrival,
    now: Instant,
) {
    let lateness = time::lateness(ctx);
    match (effect, arrival) {
        (Effect::Put(_, stake) | Effect::Sole(_, stake), Arrival::ReplicaFile) => {
            lateness.on_file(stake.deadline);
        }
        (Effect::Heartbeat(heartbeat), Arrival::File | Arrival::ReplicaFile) => {
            lateness.on_saved(now.after(heartbeat.suspect_ms));
        }
        (_, Arrival::File | Arrival::ReplicaFile) => {}
        _ if time::is_primary(ctx) => {}
        (Effect::Put(..) | Effect::Sole(..), Arrival::Live) => {
            match codec::stamp_of_effect(bytes) {
                Some(stamp) => lateness.on_hold(&stamp, now),
                None => lateness.on_unstamped(),
            }
        }
        (Effect::Heartbeat(heartbeat), Arrival::Live) => {
            if let Some(stamp) = codec::stamp_of_effect(bytes) {
                lateness.on_heartbeat(heartbeat, &stamp, time::last_deadline(ctx), now);
            }
        }
        (Effect::Drop(_) | Effect::Free | Effect::Clock, Arrival::Live) => {}
    }
}

fn apply(ctx: &Context<'_>, name: Arg<'_>, effect: &Effect<'_>, now: Instant) -> Result<(), Error> {
    let hold = match effect {
        Effect::Put(owner, stake) | Effect::Sole(owner, stake) => Some((*owner, *stake)),
        _ => None,
    };
    if let Some((_, stake)) = hold {
        time::note_deadline(ctx, stake.deadline);
    }
    let mut key = ctx.open(name, Access::Write)?;
    ctx.signal_modified(name);
    let Some(value) = key.value() else {
        if let Some((owner, stake)) = hold {
            let mut lock = Lock::free();
            lock.put(owner, stake);
            let value = Value::new(lock);
            leases::follow(ctx, ctx.key(name), &value, now);
            key.set(Box::new(value));
        }
        return Ok(());
    };
    let remains = match effect {
        Effect::Sole(..) | Effect::Free => value.lock.clear(),
        _ => None,
    };
    if let Effect::Drop(owner) = effect {
        value.lock.remove(*owner);
    }
    if let Some((owner, stake)) = hold {
        value.lock.put(owner, stake);
    }
    // While the server reads a file, no timer drops anything later, and nobody waits for the server.
    if let Some(remains) = remains.filter(|_| !ctx.is_loading()) {
        queue::free_holds(ctx, ctx.key(name), remains, false);
    }
    if value.lock.is_free() {
        key.delete();
    } else {
        leases::follow(ctx, ctx.key(name), value, now);
    }
    Ok(())
}
