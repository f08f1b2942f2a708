//! What replicas and the AOF get: facts, never requests.
//!
//! `LOCK.APPLY key effect` carries the token, the counts and the deadline that were decided here.
//! Whoever applies it decides nothing.
//!
//! Building an effect costs a third of an acquire, so it is left out while nobody can hear it:
//! while `listening` is clear. It is set whenever somebody may begin to listen (a load, a change
//! of role, every fork, for every full sync and every rewrite begins with one), and cleared only by
//! [`look_for_listeners`], from the cron, never in a cluster, whose slots may move. While it is clear
//! the command replicates itself verbatim, which reaches nobody, costs nothing, and keeps the
//! server's count of changes, on which `save` points live.

use std::cell::RefCell;
use std::ffi::CStr;

use mortise_core::codec::{self, Arrival, Effect, Fact, Heartbeat, Stamp};
use mortise_core::{Instant, Lock};

use crate::command::docs::{self, Docs};
use crate::error::Error;
use crate::ffi::{Access, Arg, Args, Command, Context, Kind};
use crate::keys::leases;
use crate::keys::remains;
use crate::keys::value::Value;
use crate::state::{self, State};
use crate::time::clock;
use crate::turn::events;

/// The command that carries effects.
pub(crate) const APPLY: &CStr = c"LOCK.APPLY";

/// How often the server is asked whether it has replicas, in milliseconds.
const ASK_EVERY: u64 = 1_000;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Sends `effect`, decided at `now`, to whoever listens; the key counts as changed.
pub(crate) fn send(ctx: &Context<'_>, key: Arg<'_>, now: Instant, effect: &Effect<'_>) {
    if sent_unheard(ctx, key) {
        return;
    }
    ctx.signal_modified(key);
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        codec::encode_effect(effect, state::last_token(), &clock::stamp_at(now), buffer);
        ctx.replicate(APPLY, key, buffer);
    });
}

/// True if nobody listens, so that no effect need be made: the key counts as changed.
pub(crate) fn sent_unheard(ctx: &Context<'_>, key: Arg<'_>) -> bool {
    if ctx.state().listening.get() {
        return false;
    }
    ctx.signal_modified(key);
    ctx.replicate_verbatim();
    true
}

/// Tells of every hold of a lock that came by RESTORE. The server passes the RESTORE on as it came, stamped with the
/// time of the DUMP, but the leases began anew: an AOF that is loaded later would end them early. The same after a full
/// sync where the AOF begins with what the primary sent and stamped.
pub(crate) fn retell(ctx: &Context<'_>, name: &[u8], lock: &Lock, now: Instant) {
    if !ctx.state().listening.get() {
        return;
    }
    let stamp = clock::stamp_at(now);
    BUFFER.with_borrow_mut(|buffer| {
        for (owner, stake) in lock.holds() {
            buffer.clear();
            let effect = Effect::Put(owner.as_ref(), stake);
            codec::encode_effect(&effect, state::last_token(), &stamp, buffer);
            ctx.replicate_named(APPLY, name, buffer);
        }
    });
}

/// Whether this replica's AOF begins with the file that its primary sent (Valkey 9), not with one of its own.
pub(crate) fn aof_begins_with_sync(ctx: &Context<'_>, state: &State) -> bool {
    let rewrites = [c"aof_rewrite_in_progress", c"aof_rewrite_scheduled"];
    !state.primary.get()
        && ctx.has_aof()
        && ctx.server_info(c"persistence", rewrites) == [Some(0), Some(0)]
}

/// Tells replicas and the AOF how far the token clock has come.
pub(crate) fn send_token_clock(ctx: &Context<'_>) {
    let mut bytes = Vec::new();
    codec::encode_effect(
        &Effect::Clock,
        state::last_token(),
        &clock::stamp(),
        &mut bytes,
    );
    ctx.replicate_named(APPLY, b"", &bytes);
}

/// Sends a heartbeat to the replicas, and to the AOF if that is to have it.
pub(crate) fn send_heartbeat(ctx: &Context<'_>, heartbeat: Heartbeat, to_aof: bool) {
    let mut bytes = Vec::new();
    let effect = Effect::Heartbeat(heartbeat);
    codec::encode_effect(&effect, state::last_token(), &clock::stamp(), &mut bytes);
    ctx.select(0);
    if to_aof {
        ctx.replicate_named(APPLY, b"", &bytes);
    } else {
        ctx.replicate_to_replicas(APPLY, &bytes);
    }
}

/// From the cron: clears `listening` if nobody does.
pub(crate) fn look_for_listeners(ctx: &Context<'_>, state: &State, now: Instant) {
    let asked = state.asked_for_replicas.get();
    // Without locks nobody tells of forks.
    if !state.listening.get() || !state.subscribed.get() || now.millis_since(asked) < ASK_EVERY {
        return;
    }
    state.asked_for_replicas.set(now);
    if !state.primary.get() || ctx.has_aof() || ctx.is_cluster() {
        return;
    }
    let fields = [c"connected_slaves", c"repl_backlog_active"];
    if ctx.server_info(c"replication", fields) == [Some(0), Some(0)] {
        state.listening.set(false);
    }
}

/// `LOCK.APPLY key effect`: a fact that somebody else decided.
pub(crate) struct Apply;

impl Command for Apply {
    const NAME: &'static str = "LOCK.APPLY";
    const MIN_ARGS: usize = 3;
    const DOCS: &'static Docs = &docs::APPLY;

    fn run(ctx: &Context<'_>, args: Args<'_>) -> Result<(), Error> {
        let loading = ctx.is_loading();
        if !loading && !ctx.is_replicated() {
            return Err(Error::Internal(Self::NAME));
        }
        let (Some(name), Some(bytes), 3) = (args.get(1), args.get(2), args.len()) else {
            return Err(Error::Arity);
        };
        // Commands that come while the server loads come from the AOF.
        let arrival = match (loading, ctx.may_be_replica()) {
            (false, _) => Arrival::Live,
            (true, false) => Arrival::File,
            (true, true) => Arrival::ReplicaFile,
        };
        events::subscribe_once(ctx, ctx.state());
        let here = clock::stamp();
        let (fact, last) = codec::decode_effect(bytes.bytes(), arrival, &here)
            .map_err(|error| Error::BadEffect(error.to_string()))?;
        state::load_last_token(last);
        if let Fact::Heartbeat(_) = fact {
            // Others than replicas have no use for it, and replicas of a replica hear the primary itself.
            note_lateness(ctx.state(), bytes.bytes(), &fact, arrival, here.boot);
            ctx.reply_null();
            return Ok(());
        }
        apply(ctx, name, &fact, here.boot)?;
        note_lateness(ctx.state(), bytes.bytes(), &fact, arrival, here.boot);
        if !loading {
            pass_on(ctx, name, &fact, last, &here);
        }
        ctx.reply_null();
        Ok(())
    }
}

/// Tells our own AOF; replicas of a replica hear the primary itself. What stands in an AOF is read when the clocks of this
/// machine are all there is to go by: stamped by those of another, it would bring the whole lease again.
fn pass_on(ctx: &Context<'_>, name: Arg<'_>, fact: &Fact<'_>, last: u64, here: &Stamp) {
    let effect = match fact {
        Fact::Put(owner, stake) if ctx.has_aof() => Effect::Put(*owner, *stake),
        Fact::Sole(owner, stake) if ctx.has_aof() => Effect::Sole(*owner, *stake),
        _ => return ctx.replicate_verbatim(),
    };
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        codec::encode_effect(&effect, last, here, buffer);
        ctx.replicate(APPLY, name, buffer);
    });
}

/// Remembers how late the effect may have come, for the day when this server is promoted.
fn note_lateness(state: &State, bytes: &[u8], fact: &Fact<'_>, arrival: Arrival, now: Instant) {
    let lateness = &state.lateness;
    match (fact, arrival) {
        (Fact::Put(_, stake) | Fact::Sole(_, stake), Arrival::ReplicaFile) => {
            lateness.on_file(stake.deadline);
        }
        (Fact::Heartbeat(heartbeat), Arrival::File | Arrival::ReplicaFile) => {
            lateness.on_saved(now.after(heartbeat.suspect_ms));
        }
        (_, Arrival::File | Arrival::ReplicaFile) => {}
        _ if state.primary.get() => {}
        (Fact::Put(..) | Fact::Sole(..), Arrival::Live) => match codec::stamp_of_effect(bytes) {
            Some(stamp) => lateness.on_hold(state, &stamp, now),
            None => lateness.on_unstamped(),
        },
        (Fact::Heartbeat(heartbeat), Arrival::Live) => {
            if let Some(stamp) = codec::stamp_of_effect(bytes) {
                lateness.on_heartbeat(state, heartbeat, &stamp, now);
            }
        }
        (Fact::Drop(_) | Fact::Free | Fact::Clock, Arrival::Live) => {}
    }
}

fn apply(ctx: &Context<'_>, name: Arg<'_>, fact: &Fact<'_>, now: Instant) -> Result<(), Error> {
    if matches!(fact, Fact::Clock | Fact::Heartbeat(_)) {
        return Ok(());
    }
    if let Fact::Put(_, stake) | Fact::Sole(_, stake) = fact {
        ctx.state().note_deadline(stake.deadline);
    }
    let mut key = ctx.open(name, Access::Write);
    if key.kind() == Kind::Other {
        return Err(Error::WrongType);
    }
    ctx.signal_modified(name);
    let Some(value) = key.value() else {
        if let Fact::Put(owner, stake) | Fact::Sole(owner, stake) = fact {
            let mut lock = Lock::free();
            lock.put(*owner, *stake);
            let value = Value::new(lock);
            leases::follow(ctx.state(), ctx.db(), name.bytes(), &value, now);
            key.set(value);
        }
        return Ok(());
    };
    let remains = match fact {
        Fact::Sole(..) | Fact::Free => value.lock.clear(),
        Fact::Put(..) | Fact::Drop(_) | Fact::Clock | Fact::Heartbeat(_) => None,
    };
    match fact {
        Fact::Put(owner, stake) | Fact::Sole(owner, stake) => value.lock.put(*owner, *stake),
        Fact::Drop(owner) => {
            value.lock.remove(*owner);
        }
        Fact::Free | Fact::Clock | Fact::Heartbeat(_) => {}
    }
    // Nothing is dropped later while a file is read, and nobody waits for the server then.
    if let Some(remains) = remains.filter(|_| !ctx.is_loading()) {
        remains::keep_dropped(ctx.state(), name.bytes(), remains);
    }
    if value.lock.is_free() {
        key.delete();
    } else {
        leases::follow(ctx.state(), ctx.db(), name.bytes(), value, now);
    }
    Ok(())
}
