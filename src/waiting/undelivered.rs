//! Grants to waiters whose client has not heard of them yet, and how they are undone.
//!
//! ```text
//!  granted ──► in flight ──┬─ reply written ──► told ──┬─ the event loop sleeps ────► forgotten
//!                          │                           └─ closed before it sleeps ──┐
//!                          └─ client gone before the reply ───────────────────────► undone when the key is settled
//! ```
//!
//! A client that the server is about to close (its user deleted, its output limit passed) is asked
//! for its reply like any other, and what is replied is thrown away. Nothing tells so but that it is
//! closed before the event loop sleeps, for until then nobody's reply has been read. Not so if it
//! closes by itself behind a reply that was written (QUIT in the same pipeline).

use std::cell::{LazyCell, RefCell};
use std::collections::HashMap;

use mortise_core::{KeyId, Owner, OwnerRef, Stake, Token, Touched, WaiterId};

use crate::ffi::{Context, MainThread, Swap};
use crate::keys::dirty;
use crate::keys::name::Name;
use crate::memory::ROOM_KEPT;
use crate::time::role;
use crate::waiting::tellings;
use crate::waiting::watched;

static UNDELIVERED: MainThread<LazyCell<RefCell<Undelivered>>> =
    MainThread::new(LazyCell::new(RefCell::default));

/// A grant that has to be undone if nobody can be told of it.
#[derive(Clone, Debug)]
pub(crate) struct UndeliveredGrant {
    pub(crate) at: (i32, Name),
    pub(crate) owner: Owner,
    pub(crate) granted: Touched,
    /// The hold's token then: one that is made anew has another.
    pub(crate) token: Token,
    pub(crate) before: Option<Stake>,
    /// Its client was replied to. If that was closed for the memory that it took, the reply was written.
    pub(crate) told: bool,
}

/// Every grant whose client may not have heard of it.
#[derive(Debug, Default)]
struct Undelivered {
    in_flight: HashMap<WaiterId, UndeliveredGrant>,
    by_owner: HashMap<Owner, Vec<WaiterId>>,
    /// By the id of its client, the grant in flight whose reply was written since the event loop slept.
    told: HashMap<u64, WaiterId>,
    /// By key, the grants to be undone when it is settled.
    to_undo: HashMap<(i32, Name), Vec<UndeliveredGrant>>,
}

impl Undelivered {
    fn land(&mut self, id: WaiterId) -> Option<UndeliveredGrant> {
        let grant = self.in_flight.remove(&id)?;
        if let Some(ids) = self.by_owner.get_mut(&grant.owner) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_owner.remove(&grant.owner);
            }
        }
        if self.in_flight.is_empty() {
            self.in_flight.shrink_to(ROOM_KEPT);
            self.by_owner.shrink_to(ROOM_KEPT);
            self.told.shrink_to(ROOM_KEPT);
        }
        Some(grant)
    }
}

/// A settle has granted the request of `id`.
pub(crate) fn granted(ctx: &Context<'_>, id: WaiterId, grant: UndeliveredGrant) {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    let owner = grant.owner.clone();
    undelivered.by_owner.entry(owner).or_default().push(id);
    undelivered.in_flight.insert(id, grant);
}

/// `client` is told of the grant of `id` now; false if that was withdrawn. The server has to tell of clients that close,
/// and of the event loop, from now on.
pub(crate) fn told(ctx: &Context<'_>, id: WaiterId, client: u64) -> bool {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    if !undelivered.in_flight.contains_key(&id) {
        return false;
    }
    if let Some(grant) = undelivered.in_flight.get_mut(&id) {
        grant.told = true;
    }
    let before = undelivered.told.insert(client, id);
    before.and_then(|before| undelivered.land(before));
    drop(undelivered);
    if !watched::watch(ctx) {
        on_slept(ctx);
    }
    true
}

/// The owner has left the key: grants of which its clients were not told yet are none. True if there was one.
pub(crate) fn withdraw(ctx: &Context<'_>, key: &KeyId, owner: OwnerRef<'_>) -> bool {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    let Some(ids) = undelivered.by_owner.get(&owner.to_owner()).cloned() else {
        return false;
    };
    let mut found = false;
    for id in ids {
        let grant = undelivered.in_flight.get(&id);
        let here = grant.is_some_and(|grant| {
            grant.at.0 == key.db as i32 && *grant.at.1 == *key.name && !grant.told
        });
        if here {
            undelivered.land(id);
            found = true;
        }
    }
    found
}

/// The event loop slept: what clients were told has been written.
pub(crate) fn on_slept(ctx: &Context<'_>) {
    tellings::on_slept(ctx);
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    if undelivered.told.is_empty() {
        return;
    }
    let told = std::mem::take(&mut undelivered.told);
    for id in told.values() {
        undelivered.land(*id);
    }
}

/// A client is being closed.
pub(crate) fn on_closed(ctx: &Context<'_>, client: u64) {
    let told = UNDELIVERED.get(ctx).borrow_mut().told.remove(&client);
    if told.is_none() && !tellings::knows(ctx, client) {
        return;
    }
    let reads_replies = ctx.closes_after_reply(client);
    if !reads_replies {
        tellings::on_closed(ctx, client);
    }
    let Some(id) = told else { return };
    if reads_replies {
        UNDELIVERED.get(ctx).borrow_mut().land(id);
    } else {
        lost(ctx, id);
    }
}

/// The server has done with the client of `id`, who was not told.
pub(crate) fn untold(ctx: &Context<'_>, id: WaiterId) {
    lost(ctx, id);
}

fn lost(ctx: &Context<'_>, id: WaiterId) {
    let grant = UNDELIVERED.get(ctx).borrow_mut().land(id);
    if let Some(grant) = grant {
        give_back(ctx, grant);
    }
}

/// Undoes a grant that nobody was told of.
pub(crate) fn give_back(ctx: &Context<'_>, grant: UndeliveredGrant) {
    if !role::is_primary(ctx) {
        return;
    }
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    let at = grant.at.clone();
    undelivered
        .to_undo
        .entry(at.clone())
        .or_default()
        .push(grant);
    drop(undelivered);
    dirty::mark_queue(ctx, at.0, &at.1);
}

/// A grant at the key has to be undone.
pub(crate) fn any_at(ctx: &Context<'_>, db: i32, name: &[u8]) -> bool {
    let undelivered = UNDELIVERED.get(ctx).borrow();
    !undelivered.to_undo.is_empty() && undelivered.to_undo.contains_key(&(db, name.into()))
}

/// Up to `most` of the grants at the key that have to be undone, the last one first. The key is looked at again for the
/// others.
pub(crate) fn take(ctx: &Context<'_>, db: i32, name: &[u8], most: usize) -> Vec<UndeliveredGrant> {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    if undelivered.to_undo.is_empty() {
        return Vec::new();
    }
    let at = (db, name.into());
    let mut found = undelivered.to_undo.remove(&at).unwrap_or_default();
    let last = found.split_off(found.len().saturating_sub(most));
    if !found.is_empty() {
        undelivered.to_undo.insert(at, found);
        drop(undelivered);
        dirty::mark_queue(ctx, db, name);
    } else if undelivered.to_undo.is_empty() {
        undelivered.to_undo.shrink_to(ROOM_KEPT);
    }
    last.into_iter().rev().collect()
}

/// Those of `grants` that nobody can have received. Asks the server for a setting: no key may be open.
pub(crate) fn not_received(
    ctx: &Context<'_>,
    mut grants: Vec<UndeliveredGrant>,
) -> Vec<UndeliveredGrant> {
    // A server that closes clients for the memory that they take does so behind their last reply.
    if grants.iter().any(|grant| grant.told) && ctx.setting(c"maxmemory-clients") != Some(0) {
        grants.retain(|grant| !grant.told);
    }
    grants
}

/// The grants at the key need not be undone.
pub(crate) fn forget_at(ctx: &Context<'_>, db: i32, name: &[u8]) {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    undelivered.to_undo.remove(&(db, name.into()));
}

/// Nothing is undone on a server that is no primary any more.
pub(crate) fn forget_all(ctx: &Context<'_>) {
    UNDELIVERED.get(ctx).borrow_mut().to_undo.clear();
}

/// The grant stands because its hold has been touched since. If that was another grant of which nobody has heard yet,
/// undoing that one undoes both.
pub(crate) fn hand_on(ctx: &Context<'_>, grant: &UndeliveredGrant) {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    let Undelivered {
        in_flight,
        by_owner,
        ..
    } = &mut *undelivered;
    for id in by_owner.get(&grant.owner).into_iter().flatten() {
        let Some(later) = in_flight.get_mut(id) else {
            continue;
        };
        let follows = later
            .before
            .is_some_and(|before| before.touched == grant.granted);
        if follows && later.at == grant.at {
            later.before = grant.before;
            return;
        }
    }
}

/// Two databases have changed places, and with them the locks whose grants may have to be undone. The waiters stay.
pub(crate) fn swap(ctx: &Context<'_>, swap: Swap) {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    for grant in undelivered.in_flight.values_mut() {
        grant.at.0 = swap.of(grant.at.0);
    }
    let to_undo = std::mem::take(&mut undelivered.to_undo);
    undelivered.to_undo = to_undo
        .into_iter()
        .map(|((db, name), grants)| ((swap.of(db), name), grants))
        .collect();
}
