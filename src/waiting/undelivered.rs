//! Grants to waiters whose client has not got the reply yet, and how they are undone.
//!
//! ```text
//!  granted ──► in flight ──┬─ reply written ──────────────► done
//!                          └─ client gone before the reply ─► undone when the key is settled
//! ```
//!
//! A reply that the server takes and then throws away, because it closes the client in the same turn, counts as written: such a
//! grant lasts for its lease.

use std::cell::{LazyCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::rc::Rc;

use mortise_core::{
    Deque, HomeKey, KeyId, KeyList, KeyRef, Owner, OwnerRef, Stake, Token, Touched, WaiterId,
};

use crate::ffi::{Context, MainThread, Swap};
use crate::time::{self, role};
use crate::work::queue as work;

static UNDELIVERED: MainThread<LazyCell<RefCell<Undelivered>>> =
    MainThread::new(LazyCell::new(RefCell::default));

/// A grant that has to be undone if it cannot be delivered.
#[derive(Clone, Debug)]
pub(crate) struct UndeliveredGrant {
    /// The first key, if they are several.
    pub(crate) key: KeyId,
    /// All keys of the grant, if they are several, as they were named.
    pub(crate) keys: Option<KeyList>,
    pub(crate) owner: Owner,
    pub(crate) granted: Touched,
    /// The hold's token then: one that is made anew has another.
    pub(crate) token: Token,
    pub(crate) before: Option<Stake>,
}

/// Every grant whose client has not got the reply.
#[derive(Debug, Default)]
struct Undelivered {
    /// By request, those whose reply is on its way.
    in_flight: BTreeMap<WaiterId, UndeliveredGrant>,
    /// The owners of those, and their requests.
    by_owner: BTreeSet<(Owner, WaiterId)>,
    /// By key, those to be undone when it is settled.
    to_undo: BTreeMap<HomeKey, Deque<UndeliveredGrant>>,
    /// Grants that need not be undone any more, and are freed one key at a time.
    forgotten: Vec<btree_map::IntoIter<HomeKey, Deque<UndeliveredGrant>>>,
}

impl Undelivered {
    fn take_in_flight(&mut self, id: WaiterId) -> Option<UndeliveredGrant> {
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
pub(crate) fn granted(ctx: &Context<'_>, id: WaiterId, grant: UndeliveredGrant) {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    undelivered.by_owner.insert((grant.owner.clone(), id));
    undelivered.in_flight.insert(id, grant);
}

/// The client gets the reply of the grant of `id` now. False if that was withdrawn.
pub(crate) fn delivered(ctx: &Context<'_>, id: WaiterId) -> bool {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    undelivered.take_in_flight(id).is_some()
}

/// The owner has left the key: its undelivered grants are void. A grant of several keys is given
/// back at the others. True if there was one.
pub(crate) fn withdraw(ctx: &Context<'_>, key: KeyRef<'_>, owner: OwnerRef<'_>) -> bool {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    if undelivered.in_flight.is_empty() {
        return false;
    }
    let ids: Vec<WaiterId> = undelivered.in_flight_of(&owner.to_owner()).collect();
    let mut withdrawn = Vec::new();
    for id in ids {
        let grant = undelivered.in_flight.get(&id);
        if grant.is_some_and(|grant| grant.is_at(key)) {
            withdrawn.extend(undelivered.take_in_flight(id));
        }
    }
    drop(undelivered);
    let found = !withdrawn.is_empty();
    for grant in withdrawn {
        undo_at_other_keys(ctx, &grant, key);
    }
    found
}

/// Undoes a grant of several keys, except at `key`, where it is undone otherwise.
pub(super) fn undo_at_other_keys(ctx: &Context<'_>, grant: &UndeliveredGrant, key: KeyRef<'_>) {
    if grant.keys.is_none() {
        return;
    }
    for at_one in grant.at_each_key() {
        if at_one.key.as_ref() != key {
            undo_later(ctx, at_one);
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

/// The server has dropped the client of `id`, which got no reply.
pub(crate) fn not_delivered(ctx: &Context<'_>, id: WaiterId) {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    let grant = undelivered.take_in_flight(id);
    drop(undelivered);
    if let Some(grant) = grant {
        undo_later(ctx, grant);
    }
}

/// Undoes an undelivered grant.
pub(crate) fn undo_later(ctx: &Context<'_>, grant: UndeliveredGrant) {
    if !role::is_primary(time::state(ctx)) {
        return;
    }
    if grant.keys.is_some() {
        for at_one in grant.at_each_key() {
            undo_later(ctx, at_one);
        }
        return;
    }
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    let key = grant.key.clone();
    let place = work::home_key(ctx, key.as_ref());
    let grants = undelivered.to_undo.entry(place).or_default();
    grants.push_back(grant);
    drop(undelivered);
    work::settle(ctx, key.as_ref());
}

/// Whether a grant at the key has to be undone.
pub(crate) fn any_at(ctx: &Context<'_>, key: KeyRef<'_>) -> bool {
    let undelivered = UNDELIVERED.get(ctx).borrow();
    !undelivered.to_undo.is_empty() && undelivered.to_undo.contains_key(&work::home_key(ctx, key))
}

/// Up to `most` of the grants at the key that have to be undone, the last one first. The key is
/// settled again for the others.
pub(crate) fn take(ctx: &Context<'_>, key: KeyRef<'_>, most: usize) -> Vec<UndeliveredGrant> {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    if undelivered.to_undo.is_empty() {
        return Vec::new();
    }
    let place = work::home_key(ctx, key);
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

/// Forgets the grants at the key that were to be undone.
pub(crate) fn forget_at(ctx: &Context<'_>, key: KeyRef<'_>) {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    let place = work::home_key(ctx, key);
    undelivered.to_undo.remove(&place);
}

/// A server that is no longer a primary undoes nothing.
pub(crate) fn forget_all(ctx: &Context<'_>) {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    let forgotten = std::mem::take(&mut undelivered.to_undo);
    undelivered.forgotten.push(forgotten.into_iter());
}

/// Drops the grants of one key that need no longer be undone. False if there are none.
pub(super) fn drop_one_forgotten(ctx: &Context<'_>) -> bool {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    let Some(forgotten) = undelivered.forgotten.last_mut() else {
        return false;
    };
    if forgotten.next().is_none() {
        undelivered.forgotten.pop();
    }
    true
}

/// Lets a later undelivered grant undo `grant`, too, which stands because that one has changed its hold.
pub(crate) fn extend_undo(ctx: &Context<'_>, grant: &UndeliveredGrant) {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
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
pub(crate) fn swap(ctx: &Context<'_>, swap: Swap) {
    let mut undelivered = UNDELIVERED.get(ctx).borrow_mut();
    for grant in undelivered.in_flight.values_mut() {
        grant.key.db = swap.of(grant.key.db);
    }
}
