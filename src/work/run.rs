//! Does deferred work, in slices: the urgent kinds before each piece of the others.
//!
//! Most work waits in `queue`. What is due by time (the ends of waits and of leases at awaited keys) is found by the indexes of
//! `waiting` and of the core.

use mortise_core::{Instant, KeyId};

use crate::ffi::{Context, Refusal};
use crate::keys::{arrivals, effect, first_lock, leases};
use crate::time;
use crate::waiting::{self, clients, letters, waiters};
use crate::work::queue::{self, EndedHolds, Kind, Work};
use crate::work::scan::{Scan, Step};
use crate::work::slice::Slice;
use crate::work::{failing, refuse, settle_key};

/// Does work until none is left that can be done now, or the slice is over.
pub(crate) fn slice(ctx: &Context<'_>, now: Instant) {
    let mut slice = Slice::begin();
    while urgent(ctx, now) || background(ctx) {
        if slice.is_over() {
            break;
        }
    }
}

/// Does one piece of work for which a client or a waiter waits. False if there is none.
fn urgent(ctx: &Context<'_>, now: Instant) -> bool {
    do_one(ctx, Kind::Wake)
        || do_one(ctx, Kind::AnswerMail)
        || waiters::time_one_out(ctx, now)
        || clients::end_reader(ctx, now)
        || do_one(ctx, Kind::Settle)
        || settle_key::settle_held_back(ctx)
        || settle_key::settle_due(ctx, now)
        || settle_key::grant_next(ctx)
}

/// Whether there is nothing to do but to wake clients.
pub(crate) fn only_wakes(ctx: &Context<'_>) -> bool {
    queue::only_wakes(ctx) && queue::held_back(ctx) == 0 && !waiting::boxes(ctx).any_closing()
}

/// Whether urgent work is left, other than what is due by time.
pub(crate) fn is_urgent_left(ctx: &Context<'_>) -> bool {
    [Kind::Wake, Kind::AnswerMail, Kind::Settle]
        .iter()
        .any(|kind| queue::len(ctx, *kind) > 0)
        || (queue::held_back(ctx) > 0 && !queue::is_blocked(ctx))
        || waiting::queues(ctx).borrow().any_due()
}

/// Does one piece of other work. False if there is none that can be done now.
fn background(ctx: &Context<'_>) -> bool {
    let kind = |kind| can_do(ctx, kind) && do_one(ctx, kind);
    waiting::boxes(ctx).close_some(ctx) || BACKGROUND.into_iter().any(kind)
}

const BACKGROUND: [Kind; 8] = [
    Kind::SendTokenClock,
    Kind::Refuse,
    Kind::Scan,
    Kind::Enter,
    Kind::ReplicateLeases,
    Kind::WarnOfEvictions,
    Kind::DropEnded,
    Kind::Free,
];

/// Whether there is other work that can be done now.
pub(crate) fn is_background_left(ctx: &Context<'_>) -> bool {
    waiting::boxes(ctx).any_closing() || BACKGROUND.into_iter().any(|kind| can_do(ctx, kind))
}

fn can_do(ctx: &Context<'_>, kind: Kind) -> bool {
    queue::len(ctx, kind) > 0
        && match kind {
            Kind::Scan | Kind::DropEnded => !queue::is_blocked(ctx),
            // This passes no gate.
            Kind::ReplicateLeases | Kind::SendTokenClock => !ctx.avoid_replication_traffic(),
            _ => true,
        }
}

/// Does one piece of the first work of that kind. False if there is none.
fn do_one(ctx: &Context<'_>, kind: Kind) -> bool {
    let Some((number, work)) = queue::take(ctx, kind) else {
        return false;
    };
    if let Some(rest) = perform(ctx, work) {
        queue::put_back(ctx, number, rest);
    }
    true
}

/// Does a piece of the work, and returns what is left of it.
fn perform(ctx: &Context<'_>, work: Work) -> Option<Work> {
    match work {
        Work::Wake(blocked) => blocked.unblock(),
        Work::AnswerMail(id) => letters::answer(ctx, id),
        Work::Settle(key) => settle_key::settle(ctx, &queue::key_of(ctx, &key)),
        Work::Refuse(refusal) => return refuse::step(ctx, refusal).map(Work::Refuse),
        Work::Scan(scan) => return scan_step(ctx, scan).map(Work::Scan),
        Work::Enter(key) => {
            let key = arrivals::enter(ctx, &key);
            waiting::queues(ctx)
                .borrow_mut()
                .recheck_holders(key.as_ref());
            settle_key::settle(ctx, &key);
        }
        Work::ReplicateLeases(key) => arrivals::replicate_again(ctx, &key),
        Work::SendTokenClock => effect::send_token_clock(ctx),
        Work::WarnOfEvictions => first_lock::warn_of_evictions(ctx),
        Work::DropEnded(key) => drop_ended(ctx, &queue::key_of(ctx, &key)),
        Work::FreeHolds(holds) => return free_one(ctx, holds).map(Work::FreeHolds),
        Work::FreeTables(mut tables) => {
            return tables.drop_some().then_some(Work::FreeTables(tables));
        }
        Work::FreeUndone(mut undone) => {
            return undone.next().map(|_| Work::FreeUndone(undone));
        }
    }
    None
}

/// Settles the next key of the scan. `None` after the last one.
pub(crate) fn scan_step(ctx: &Context<'_>, mut scan: Scan) -> Option<Scan> {
    let step = scan.step(&waiting::queues(ctx).borrow());
    match step {
        // It is tried again after a pause.
        Step::Key(key) if failing::is_failing(ctx, key.as_ref()) => {}
        Step::Key(key) => settle_key::settle(ctx, &key),
        Step::Passed => {}
        Step::End => return None,
    }
    Some(scan)
}

/// Drops a few of the holds whose lease is over at one lock. While there are more, the key is queued again when it is closed. A
/// slot that has left takes its locks along.
fn drop_ended(ctx: &Context<'_>, key: &KeyId) {
    let key = key.as_ref();
    if !time::is_primary(ctx) {
        return;
    }
    if settle_key::call(ctx, key) == Err(Refusal::Gate) {
        queue::push_key(ctx, key, Work::DropEnded);
    }
}

/// Counts, announces and frees one of the holds. `None` if that was the last one.
fn free_one(ctx: &Context<'_>, mut ended: EndedHolds) -> Option<EndedHolds> {
    let (_, stake) = ended.holds.pop()?;
    if ended.expired {
        leases::count_ended(ctx, &stake);
        ctx.select(ended.key.db);
        ctx.notify_named(c"lock.expire", &ended.key.name);
    }
    Some(ended)
}
