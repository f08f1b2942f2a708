//! Which slots of the cluster this server has: a waiter whose slot has left gets an error.
//!
//! Not all servers have an event for that. So while anybody waits, the module asks the server for
//! its own line of CLUSTER NODES: once for all slots, however many keys have waiters.

use std::cell::{LazyCell, RefCell};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use mortise_core::{Instant, KeyRef, WaitingKeys, slot_of};

use crate::error::Error;
use crate::ffi::{Context, MainThread};
use crate::time::clock;
use crate::time::lag::{self, Hidden};
use crate::waiting;
use crate::work::queue::Scope;
use crate::work::{queue, refuse};

static SLOTS: MainThread<LazyCell<RefCell<Slots>>> =
    MainThread::new(LazyCell::new(RefCell::default));

/// The slots of this server.
#[derive(Debug, Default)]
struct Slots {
    /// Slots whose requests this server serves: its own, and those that are moving to it. In order.
    here: Vec<RangeInclusive<u16>>,
    /// Slots that are moving to it: it serves clients that follow an ASK.
    importing: BTreeSet<u16>,
    /// Slots that are leaving it: it serves the keys that are still here.
    migrating: BTreeSet<u16>,
    /// When the server was asked for them.
    asked: Instant,
}

/// How old the answer may be for a question about one key, in milliseconds.
const FRESH: u64 = 20;

/// Refuses the waiters whose slot has left. The sweep calls this.
pub(crate) fn check(ctx: &Context<'_>, now: Instant) {
    if waiting::queues(ctx).borrow().is_empty() || !refresh(ctx, now) {
        return;
    }
    let gone: Vec<u16> = {
        let (queues, slots) = (waiting::queues(ctx).borrow(), SLOTS.get(ctx).borrow());
        slots.left(queues.waiting_keys())
    };
    for slot in gone {
        refuse::all(ctx, Scope::Slot(slot), Error::SLOT_HAS_LEFT);
    }
}

/// Asks the server for its slots. False if it hides them.
fn refresh(ctx: &Context<'_>, now: Instant) -> bool {
    let Some(mut slots) = ctx.cluster_nodes().as_deref().and_then(Slots::read) else {
        lag::note_hidden(ctx, Hidden::ClusterNodes);
        return false;
    };
    slots.asked = now;
    let before = SLOTS.get(ctx).replace(slots);
    let after = SLOTS.get(ctx).borrow();
    let leaving = || after.migrating.difference(&before.migrating);
    for slot in leaving().chain(after.importing.difference(&before.importing)) {
        // While keys move one by one, a missing key does not show who holds it.
        refuse::several_in_slot(ctx, *slot);
    }
    for slot in leaving().chain(before.importing.difference(&after.importing)) {
        // Keys that were held back there may be settled now.
        queue::scan(ctx, Scope::Slot(*slot));
    }
    true
}

/// Whether the slots are known as they were a moment ago.
fn are_known(ctx: &Context<'_>, now: Instant) -> bool {
    let is_fresh = now.millis_since(SLOTS.get(ctx).borrow().asked) <= FRESH;
    is_fresh || refresh(ctx, now)
}

/// Whether the slot of the key is on its way here and somebody holds the lock. Its waiters then keep waiting, although the server lets no
/// timer write to the slot yet.
pub(crate) fn may_wait_on(ctx: &Context<'_>, key: KeyRef<'_>) -> bool {
    let now = clock::now();
    let is_held = || {
        let queues = waiting::queues(ctx).borrow();
        let queue = queues.get(key);
        queue.is_some_and(|queue| queue.held().live_len(now) > 0)
    };
    let slots = SLOTS.get(ctx);
    are_known(ctx, now) && slots.borrow().importing.contains(&slot_of(key.name)) && is_held()
}

/// Whether the key's slot is on its way from or to this server, key by key; also true if the server hides that.
pub(crate) fn is_moving(ctx: &Context<'_>, key: KeyRef<'_>) -> bool {
    if !ctx.is_cluster() {
        return false;
    }
    if !are_known(ctx, clock::now()) {
        return true;
    }
    let (slots, slot) = (SLOTS.get(ctx).borrow(), slot_of(key.name));
    slots.importing.contains(&slot) || slots.migrating.contains(&slot)
}

impl Slots {
    /// The slots with waiters that are not here. Costs one look-up for each stretch of slots.
    fn left(&self, waiting: WaitingKeys<'_>) -> Vec<u16> {
        let (mut left, mut from) = (Vec::new(), 0);
        while let Some(slot) = waiting.slot_from(from) {
            let next = self.here.partition_point(|slots| *slots.end() < slot);
            let here = self.here.get(next).filter(|slots| slots.contains(&slot));
            from = here.map_or(slot, |slots| *slots.end()) + 1;
            if here.is_none() {
                left.push(slot);
            }
        }
        left
    }

    /// Reads the text of CLUSTER NODES, whose lines are `id address flags primary ping pong epoch link slot…`.
    fn read(nodes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(nodes).ok()?;
        let is_own = |line: &&str| {
            let flags = line.split(' ').nth(2);
            flags.is_some_and(|flags| flags.split(',').any(|flag| flag == "myself"))
        };
        let line = text.lines().find(is_own)?;
        let mut slots = Self::default();
        for part in line.split(' ').skip(8) {
            slots.add(part)?;
        }
        slots.here.sort_unstable_by_key(|slots| *slots.start());
        Some(slots)
    }

    /// `7`, `0-5460`, `[7->-id]` for one that leaves, `[7-<-id]` for one that comes.
    fn add(&mut self, part: &str) -> Option<()> {
        if let Some(moving) = part.strip_prefix('[') {
            if let Some((slot, _)) = moving.split_once("->-") {
                self.migrating.insert(slot.parse().ok()?);
            } else if let Some((slot, _)) = moving.split_once("-<-") {
                let slot = slot.parse().ok()?;
                self.importing.insert(slot);
                self.here.push(slot..=slot);
            }
            return Some(());
        }
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        self.here.push(first.parse().ok()?..=last.parse().ok()?);
        Some(())
    }
}
