//! The state of this layer, all of it gone with the process.
//!
//! Each field has a cell of its own, so that a borrow of one part blocks no other. A borrower
//! copies out what it needs, drops the borrow, and only then calls the server or another part,
//! which may come back here.

use std::cell::{LazyCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use mortise_core::mail::BoxId;
use mortise_core::{Instant, Left, Queues};

use crate::ffi::{BlockedId, Context, MainThread};
use crate::waiting::clients::Clients;
use crate::waiting::post::Post;

static WAITING: MainThread<Waiting> = MainThread::new(Waiting {
    post: LazyCell::new(Post::default),
    queues: LazyCell::new(RefCell::default),
    left: LazyCell::new(RefCell::default),
    clients: LazyCell::new(RefCell::default),
    readers: LazyCell::new(RefCell::default),
});

pub(crate) fn get(ctx: &Context<'_>) -> &'static Waiting {
    WAITING.get(ctx)
}

/// Who waits, and for what.
pub(crate) struct Waiting {
    /// The boxes, and the requests by mail.
    pub(super) post: LazyCell<Post>,
    /// The queue of each key.
    pub(super) queues: LazyCell<RefCell<Queues>>,
    /// Owners that stay away from a key for a while.
    pub(super) left: LazyCell<RefCell<Left>>,
    /// Every blocked client, and what it waits for.
    pub(super) clients: LazyCell<RefCell<Clients>>,
    /// LOCK.MAILs that wait for letters.
    pub(super) readers: LazyCell<RefCell<Readers>>,
}

#[derive(Debug, Default)]
pub(super) struct Readers {
    pub(super) waiting: BTreeMap<BoxId, (BlockedId, Instant)>,
    pub(super) limits: BTreeSet<(Instant, BoxId)>,
}
