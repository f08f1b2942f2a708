//! Grants to waiters whose client has not got the reply yet, and how they are undone.
//!
//! ```text
//!  granted ──► in flight ──┬─ reply written ──► sent ──┬─ the event loop sleeps ────► forgotten
//!                          │                           └─ closed before it sleeps ──┐
//!                          └─ client gone before the reply ───────────────────────► undone when the key is settled
//! ```
//!
//! A client that the server is about to close (its user deleted, its output limit passed) is asked
//! for its reply like any other, and what is replied is thrown away. The only sign of this is that the server closes it before the event
//! loop sleeps, because until then no client has read its reply. A client that closes its connection itself after a written reply (QUIT in
//! the same pipeline) keeps its grant.

use std::rc::Rc;

use mortise_core::{KeyId, KeyList, KeyRef, Owner, OwnerRef, WaiterId};

use crate::ffi::{Context, Swap};
use crate::time::{self, role};
use crate::waiting::deliveries;
pub(crate) use crate::waiting::state::UndeliveredGrant;
use crate::waiting::state::{self, Undelivered, Waiting};
use crate::waiting::watched;
use crate::work::queue as work;

impl Undelivered {
    fn land(&mut self, id: WaiterId) -> Option<UndeliveredGrant> {
        let grant = self.in_flight.remove(&id)?;
        self.by_owner.remove(&(grant.owner.clone(), id));
        Some(grant)
    }

    fn in_flight_of(&self, owner: &Owner) -> impl Iterator<Item = WaiterId> {
        let first = (owner.clone(), WaiterId(0));
        let last = (owner.clone(), WaiterId(u64::MAX));
        self.by_owner.range(first..=last).map(|(_, id)| *id)
    }
}

/// A settle has granted the request of `id`.
pub(crate) fn granted(waiting: &Waiting, id: WaiterId, grant: UndeliveredGrant) {
    let mut undelivered = waiting.undelivered.borrow_mut();
    undelivered.by_owner.insert((grant.owner.clone(), id));
    undelivered.in_flight.insert(id, grant);
}

/// `client` gets the reply of the grant of `id` now; false if that was withdrawn. From now on the
/// module needs events of closing clients and of the event loop.
pub(crate) fn delivered(ctx: &Context<'_>, id: WaiterId, client: u64) -> bool {
    let mut undelivered = state::get(ctx).undelivered.borrow_mut();
    if !undelivered.in_flight.contains_key(&id) {
        return false;
    }
    if let Some(grant) = undelivered.in_flight.get_mut(&id) {
        grant.delivered = true;
    }
    let before = undelivered.delivered.insert(client, id);
    before.and_then(|before| undelivered.land(before));
    drop(undelivered);
    if !watched::watch(ctx) {
        on_slept(state::get(ctx));
    }
    true
}

/// The owner has left the key: its undelivered grants are void. A grant of several keys is given
/// back at the others. True if there was one.
pub(crate) fn withdraw(ctx: &Context<'_>, key: KeyRef<'_>, owner: OwnerRef<'_>) -> bool {
    let mut undelivered = state::get(ctx).undelivered.borrow_mut();
    if undelivered.in_flight.is_empty() {
        return false;
    }
    let ids: Vec<WaiterId> = undelivered.in_flight_of(&owner.to_owner()).collect();
    let mut withdrawn = Vec::new();
    for id in ids {
        let grant = undelivered.in_flight.get(&id);
        if grant.is_some_and(|grant| grant.is_at(key) && !grant.delivered) {
            withdrawn.extend(undelivered.land(id));
        }
    }
    drop(undelivered);
    let found = !withdrawn.is_empty();
    for grant in withdrawn {
        give_back_elsewhere(ctx, &grant, key);
    }
    found
}

/// Undoes a grant of several keys, except at `key`, where it is undone otherwise.
pub(super) fn give_back_elsewhere(ctx: &Context<'_>, grant: &UndeliveredGrant, key: KeyRef<'_>) {
    if grant.keys.is_none() {
        return;
    }
    for at_one in grant.at_each_key() {
        if at_one.key.as_ref() != key {
            give_back(ctx, at_one);
        }
    }
}

impl UndeliveredGrant {
    fn is_at(&self, key: KeyRef<'_>) -> bool {
        self.key.db == key.db && self.names().any(|name| **name == *key.name)
    }

    fn names(&self) -> impl Iterator<Item = &Rc<[u8]>> {
        let key = std::slice::from_ref(&self.key);
        let keys = self.keys.as_ref().map_or(key, KeyList::as_slice);
        keys.iter().map(|key| &key.name)
    }

    /// The grant, split into one for each of its keys.
    fn at_each_key(&self) -> impl Iterator<Item = Self> {
        self.names().map(|name| Self {
            key: KeyId {
                db: self.key.db,
                name: Rc::clone(name),
            },
            keys: None,
            ..self.clone()
        })
    }
}

/// The event loop slept: the replies have been written.
pub(crate) fn on_slept(waiting: &Waiting) {
    deliveries::on_slept(waiting);
    let mut undelivered = waiting.undelivered.borrow_mut();
    if undelivered.delivered.is_empty() {
        return;
    }
    let delivered = std::mem::take(&mut undelivered.delivered);
    for id in delivered.values() {
        undelivered.land(*id);
    }
}

/// A client is being closed.
pub(crate) fn on_closed(ctx: &Context<'_>, client: u64) {
    let delivered = state::get(ctx)
        .undelivered
        .borrow_mut()
        .delivered
        .remove(&client);
    if delivered.is_none() && !deliveries::knows(state::get(ctx), client) {
        return;
    }
    let reads_replies = ctx.closes_after_reply(client);
    if !reads_replies {
        deliveries::on_closed(state::get(ctx), client);
    }
    let Some(id) = delivered else { return };
    if reads_replies {
        state::get(ctx).undelivered.borrow_mut().land(id);
    } else {
        lost(ctx, id);
    }
}

/// The server has dropped the client of `id`, which got no reply.
pub(crate) fn not_delivered(ctx: &Context<'_>, id: WaiterId) {
    lost(ctx, id);
}

fn lost(ctx: &Context<'_>, id: WaiterId) {
    let grant = state::get(ctx).undelivered.borrow_mut().land(id);
    if let Some(grant) = grant {
        give_back(ctx, grant);
    }
}

/// Undoes an undelivered grant.
pub(crate) fn give_back(ctx: &Context<'_>, grant: UndeliveredGrant) {
    if !role::is_primary(time::state(ctx)) {
        return;
    }
    if grant.keys.is_some() {
        for at_one in grant.at_each_key() {
            give_back(ctx, at_one);
        }
        return;
    }
    let mut undelivered = state::get(ctx).undelivered.borrow_mut();
    let key = grant.key.clone();
    let place = undelivered.homes.home_key(key.as_ref());
    let grants = undelivered.to_undo.entry(place).or_default();
    grants.push_back(grant);
    drop(undelivered);
    work::settle(ctx, key.as_ref());
}

/// Marks that a grant at the key has to be undone.
pub(crate) fn any_at(waiting: &Waiting, key: KeyRef<'_>) -> bool {
    let undelivered = waiting.undelivered.borrow();
    !undelivered.to_undo.is_empty()
        && undelivered
            .to_undo
            .contains_key(&undelivered.homes.home_key(key))
}

/// Up to `most` of the grants at the key that have to be undone, the last one first. The key is
/// settled again for the others.
pub(crate) fn take(ctx: &Context<'_>, key: KeyRef<'_>, most: usize) -> Vec<UndeliveredGrant> {
    let mut undelivered = state::get(ctx).undelivered.borrow_mut();
    if undelivered.to_undo.is_empty() {
        return Vec::new();
    }
    let place = undelivered.homes.home_key(key);
    let Some(grants) = undelivered.to_undo.get_mut(&place) else {
        return Vec::new();
    };
    let last = std::iter::from_fn(|| grants.pop_back()).take(most);
    let last = last.map(|mut grant| {
        grant.key.db = key.db;
        grant
    });
    let last = last.collect();
    if grants.is_empty() {
        undelivered.to_undo.remove(&place);
    } else {
        drop(undelivered);
        work::settle(ctx, key);
    }
    last
}

/// Those of `grants` that nobody can have received. Asks the server for a setting: no key may be open.
pub(crate) fn not_received(
    ctx: &Context<'_>,
    mut grants: Vec<UndeliveredGrant>,
) -> Vec<UndeliveredGrant> {
    // A server that closes clients for the memory that they take does so after their last reply.
    if grants.iter().any(|grant| grant.delivered) && ctx.setting(c"maxmemory-clients") != Some(0) {
        grants.retain(|grant| !grant.delivered);
    }
    grants
}

/// Marks that the grants at the key need not be undone.
pub(crate) fn forget_at(waiting: &Waiting, key: KeyRef<'_>) {
    let mut undelivered = waiting.undelivered.borrow_mut();
    let place = undelivered.homes.home_key(key);
    undelivered.to_undo.remove(&place);
}

/// A server that is no longer a primary undoes nothing.
pub(crate) fn forget_all(waiting: &Waiting) {
    let mut undelivered = waiting.undelivered.borrow_mut();
    let forgotten = std::mem::take(&mut undelivered.to_undo);
    undelivered.forgotten.push(forgotten.into_iter());
}

/// Drops the grants of one key that need no longer be undone. False if there are none.
pub(super) fn drop_one_forgotten(waiting: &Waiting) -> bool {
    let mut undelivered = waiting.undelivered.borrow_mut();
    let Some(forgotten) = undelivered.forgotten.last_mut() else {
        return false;
    };
    if forgotten.next().is_none() {
        undelivered.forgotten.pop();
    }
    true
}

/// The grant stands because another one has changed its hold since. If that one is undelivered, too, undoing it undoes both.
pub(crate) fn hand_on(waiting: &Waiting, grant: &UndeliveredGrant) {
    let mut undelivered = waiting.undelivered.borrow_mut();
    let ids: Vec<WaiterId> = undelivered.in_flight_of(&grant.owner).collect();
    for id in ids {
        let Some(later) = undelivered.in_flight.get_mut(&id) else {
            continue;
        };
        let follows = later
            .before
            .is_some_and(|before| before.touched == grant.granted);
        if follows && later.key == grant.key {
            later.before = grant.before;
            return;
        }
    }
}

/// Two databases have changed places, and with them the locks whose grants may have to be undone. The waiters stay.
pub(crate) fn swap(waiting: &Waiting, swap: Swap) {
    let mut undelivered = waiting.undelivered.borrow_mut();
    for grant in undelivered.in_flight.values_mut() {
        grant.key.db = swap.of(grant.key.db);
    }
    let Swap(one, other) = swap;
    undelivered.homes.swap(one, other);
}
