//! Letters that clients were told in this turn of the event loop, and may never read.
//!
//! A client that the server is about to close is replied to like any other, and the reply is thrown away (see
//! `undelivered`, which has the same question for blocked requests). Its letters count as not told, unless another client
//! was told them.

use std::cell::{LazyCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use mortise_core::mail::{BoxId, Mail, Told};

use crate::ffi::{Context, MainThread};
use crate::waiting::post;

static TELLINGS: MainThread<LazyCell<RefCell<Tellings>>> =
    MainThread::new(LazyCell::new(RefCell::default));

/// What the boxes were told since the event loop slept.
#[derive(Debug, Default)]
struct Tellings {
    by_box: BTreeMap<BoxId, Telling>,
    /// The id of a client, and a box that it was told of.
    by_client: BTreeSet<(u64, BoxId)>,
}

#[derive(Debug)]
struct Telling {
    /// What was told before this turn.
    before: Told,
    /// Clients, and up to where each was told.
    to: Vec<(u64, Told)>,
}

impl Tellings {
    fn boxes_of(&self, client: u64) -> impl Iterator<Item = BoxId> {
        let range = (client, BoxId(0))..=(client, BoxId(u64::MAX));
        self.by_client.range(range).map(|(_, id)| *id)
    }
}

/// The client of `ctx` was told letters of the box, of which `before` had been told.
pub(super) fn add(ctx: &Context<'_>, mail: &Mail, id: BoxId, before: Told) {
    let client = ctx.client_id();
    let mut tellings = TELLINGS.get(ctx).borrow_mut();
    let telling = tellings.by_box.entry(id).or_insert(Telling {
        before,
        to: Vec::new(),
    });
    telling.to.retain(|(other, _)| *other != client);
    telling.to.push((client, mail.told(id)));
    tellings.by_client.insert((client, id));
}

/// `client` was told letters since the event loop slept.
pub(super) fn knows(ctx: &Context<'_>, client: u64) -> bool {
    let tellings = TELLINGS.get(ctx).borrow();
    tellings.boxes_of(client).next().is_some()
}

/// The event loop slept: replies have been written.
pub(super) fn on_slept(ctx: &Context<'_>) {
    let mut tellings = TELLINGS.get(ctx).borrow_mut();
    if tellings.by_box.is_empty() {
        return;
    }
    tellings.by_box.clear();
    tellings.by_client.clear();
}

/// `client` is being closed, and has not read what it was told since the event loop slept.
pub(super) fn on_closed(ctx: &Context<'_>, client: u64) {
    let mut tellings = TELLINGS.get(ctx).borrow_mut();
    let boxes: Vec<BoxId> = tellings.boxes_of(client).collect();
    for id in boxes {
        tellings.by_client.remove(&(client, id));
        let Some(telling) = tellings.by_box.get_mut(&id) else {
            continue;
        };
        telling.to.retain(|(other, _)| *other != client);
        let last = telling.to.iter().map(|(_, told)| *told).max();
        let told = last.unwrap_or(telling.before);
        post::get(ctx).mail.borrow_mut().untell(id, told);
    }
}
