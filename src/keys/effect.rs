//! What replicas and the AOF get: facts, never requests.
//!
//! `LOCK.APPLY key effect` carries the token, the counts and the deadline that were decided here.
//! The server that applies it decides nothing.
//!
//! Building an effect costs a third of an acquire, so it is left out while it has no receiver:
//! while `HAS_RECEIVERS` is clear. The flag is set whenever there may be a replica or an AOF from
//! now on (a load, a change of role, every fork, with which every full sync and every rewrite
//! begins). Only [`check_receivers`] clears it, from the cron, and never in a cluster, whose slots
//! may move. While it is clear the command replicates itself verbatim, which reaches nobody, costs
//! nothing, and keeps the server's count of changes, on which `save` points live.

use std::cell::{Cell, RefCell, RefMut};
use std::ffi::CStr;

use mortise_core::codec::{self, Effect, Heartbeat, Stamp};
use mortise_core::{Db, Instant, Lock};

use crate::ffi::{Arg, Context, MainThread};
use crate::keys::tokens;
use crate::time::{self, clock};

/// A buffer in which effects are encoded.
static BUFFER: MainThread<RefCell<Vec<u8>>> = MainThread::new(RefCell::new(Vec::new()));
/// A replica or the AOF may receive effects.
static HAS_RECEIVERS: MainThread<Cell<bool>> = MainThread::new(Cell::new(true));
/// When the server was last asked whether it has replicas.
static ASKED: MainThread<Cell<Instant>> = MainThread::new(Cell::new(Instant::from_millis(0)));

/// The command that carries effects.
pub(crate) const APPLY: &CStr = c"LOCK.APPLY";

/// How often the server is asked whether it has replicas, in milliseconds.
const ASK_EVERY: u64 = 1_000;

/// Notes that a replica or the AOF may receive effects from now on.
pub(crate) fn may_have_receivers(ctx: &Context<'_>) {
    HAS_RECEIVERS.get(ctx).set(true);
}

/// Sends `effect`, decided at `now`, to replicas and the AOF, if there are any; the key counts as
/// changed.
pub(crate) fn send(ctx: &Context<'_>, key: Arg<'_>, now: Instant, effect: &Effect<'_>) {
    if sent_without_receivers(ctx, key) {
        return;
    }
    ctx.signal_modified(key);
    let bytes = encode(ctx, effect, &clock::stamp_at(now));
    ctx.replicate(APPLY, key.bytes(), &bytes);
}

/// The bytes of an effect, in a buffer that is used for all.
fn encode(ctx: &Context<'_>, effect: &Effect<'_>, stamp: &Stamp) -> RefMut<'static, Vec<u8>> {
    let mut buffer = BUFFER.get(ctx).borrow_mut();
    buffer.clear();
    codec::encode_effect(effect, tokens::last(ctx), stamp, &mut buffer);
    buffer
}

/// Whether there is no receiver, so that no effect need be built. The key counts as changed then.
pub(crate) fn sent_without_receivers(ctx: &Context<'_>, key: Arg<'_>) -> bool {
    if HAS_RECEIVERS.get(ctx).get() {
        return false;
    }
    ctx.signal_modified(key);
    ctx.replicate_verbatim();
    true
}

/// Replicates every hold of a lock that came by RESTORE. The server replicates the RESTORE as it
/// came, stamped with the time of the DUMP, but the leases began anew: an AOF that is loaded later
/// would end them early.
pub(crate) fn replicate_again(ctx: &Context<'_>, name: &[u8], lock: &Lock, now: Instant) {
    if !HAS_RECEIVERS.get(ctx).get() {
        return;
    }
    let stamp = clock::stamp_at(now);
    for (owner, stake) in lock.holds() {
        let bytes = encode(ctx, &Effect::Put(owner.as_ref(), stake), &stamp);
        ctx.replicate(APPLY, name, &bytes);
    }
}

/// Replicates the token clock.
pub(crate) fn send_token_clock(ctx: &Context<'_>) {
    let bytes = encode(ctx, &Effect::Clock, &clock::stamp());
    ctx.replicate(APPLY, b"", &bytes);
}

/// Sends a heartbeat to the replicas, and to the AOF if asked to.
pub(crate) fn send_heartbeat(ctx: &Context<'_>, heartbeat: Heartbeat, to_aof: bool) {
    let bytes = encode(ctx, &Effect::Heartbeat(heartbeat), &clock::stamp());
    ctx.select(Db::default());
    if to_aof {
        ctx.replicate(APPLY, b"", &bytes);
    } else {
        ctx.replicate_to_replicas(APPLY, &bytes);
    }
}

/// Clears `HAS_RECEIVERS` if there are none. The cron calls this.
pub(crate) fn check_receivers(ctx: &Context<'_>, now: Instant) {
    let asked = ASKED.get(ctx).get();
    if !HAS_RECEIVERS.get(ctx).get() || now.millis_since(asked) < ASK_EVERY {
        return;
    }
    ASKED.get(ctx).set(now);
    if !time::is_primary(ctx) || ctx.has_aof() || ctx.is_cluster() {
        return;
    }
    let fields = [c"connected_slaves", c"repl_backlog_active"];
    if ctx.server_info(c"replication", fields) == [Some(0), Some(0)] {
        HAS_RECEIVERS.get(ctx).set(false);
    }
}

/// Replicates an effect that this replica has applied: to its own AOF, because replicas of a replica get the primary's stream itself. An AOF is
/// read by the clocks of this machine: stamped by those of another, it would bring the whole lease again.
pub(crate) fn replicate_applied(
    ctx: &Context<'_>,
    name: Arg<'_>,
    effect: &Effect<'_>,
    here: &Stamp,
) {
    match effect {
        Effect::Put(..) | Effect::Sole(..) if ctx.has_aof() => {
            ctx.replicate(APPLY, name.bytes(), &encode(ctx, effect, here));
        }
        _ => ctx.replicate_verbatim(),
    }
}
