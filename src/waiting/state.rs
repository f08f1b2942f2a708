//! The state of this layer, all of it gone with the process.
//!
//! Each field has a cell of its own, so that a borrow of one part blocks no other. A borrower
//! copies out what it needs, drops the borrow, and only then calls the server or another part,
//! which may come back here.

use std::cell::{LazyCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, btree_map};

use mortise_core::mail::BoxId;
use mortise_core::{
    Deque, HomeKey, Homes, Instant, KeyId, KeyList, Left, Owner, Queues, Stake, Token, Touched,
    WaiterId,
};

use crate::ffi::{Blocked, Context, MainThread};
use crate::waiting::clients::Clients;
use crate::waiting::post::Post;

static WAITING: MainThread<Waiting> = MainThread::new(Waiting {
    post: LazyCell::new(Post::default),
    queues: LazyCell::new(RefCell::default),
    left: LazyCell::new(RefCell::default),
    clients: LazyCell::new(RefCell::default),
    readers: LazyCell::new(RefCell::default),
    undelivered: LazyCell::new(RefCell::default),
});

pub(crate) fn get(ctx: &Context<'_>) -> &'static Waiting {
    WAITING.get(ctx)
}

/// Who waits, for what, and which results are not delivered yet.
pub(crate) struct Waiting {
    /// The boxes, and the requests by mail.
    pub(super) post: LazyCell<Post>,
    /// The queue of each key.
    pub(super) queues: LazyCell<RefCell<Queues>>,
    /// Owners that have left a key for good.
    pub(super) left: LazyCell<RefCell<Left>>,
    /// Every blocked client, and what it waits for.
    pub(super) clients: LazyCell<RefCell<Clients>>,
    /// LOCK.MAILs that wait for letters.
    pub(super) readers: LazyCell<RefCell<Readers>>,
    /// Grants whose client may not have got the reply.
    pub(super) undelivered: LazyCell<RefCell<Undelivered>>,
}

#[derive(Debug, Default)]
pub(super) struct Readers {
    pub(super) waiting: BTreeMap<BoxId, (Blocked, Instant)>,
    pub(super) limits: BTreeSet<(Instant, BoxId)>,
}

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

/// Every grant whose client may not have got the reply.
#[derive(Debug, Default)]
pub(super) struct Undelivered {
    pub(super) in_flight: BTreeMap<WaiterId, UndeliveredGrant>,
    pub(super) by_owner: BTreeSet<(Owner, WaiterId)>,
    /// By key, the grants to be undone when it is settled.
    pub(super) to_undo: ToUndo,
    /// Where the databases of those keys are now.
    pub(super) homes: Homes,
    /// Those that need not be undone any more.
    pub(super) forgotten: Vec<btree_map::IntoIter<HomeKey, Deque<UndeliveredGrant>>>,
}

pub(super) type ToUndo = BTreeMap<HomeKey, Deque<UndeliveredGrant>>;
