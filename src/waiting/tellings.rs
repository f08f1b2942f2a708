//! Letters that were delivered to clients in this turn of the event loop, and may never be read.
//!
//! A client that the server is about to close is replied to like any other, and the reply is thrown
//! away (see `undelivered`, which has the same question for blocked requests). Its letters count as
//! undelivered, unless another client got them.

use mortise_core::mail::{BoxId, Delivered, Mail};

use crate::waiting::state::{Telling, Tellings, Waiting};

impl Tellings {
    fn boxes_of(&self, client: u64) -> impl Iterator<Item = BoxId> {
        let range = (client, BoxId(0))..=(client, BoxId(u64::MAX));
        self.by_client.range(range).map(|(_, id)| *id)
    }
}

/// `client` got letters of the box, of which those up to `before` had been delivered.
pub(super) fn add(waiting: &Waiting, mail: &Mail, client: u64, id: BoxId, before: Delivered) {
    let mut tellings = waiting.tellings.borrow_mut();
    let telling = tellings.by_box.entry(id).or_insert(Telling {
        before,
        to: Vec::new(),
    });
    telling.to.retain(|(other, _)| *other != client);
    telling.to.push((client, mail.delivered(id)));
    tellings.by_client.insert((client, id));
}

/// Whether `client` got letters since the event loop slept.
pub(super) fn knows(waiting: &Waiting, client: u64) -> bool {
    let tellings = waiting.tellings.borrow();
    tellings.boxes_of(client).next().is_some()
}

/// The event loop slept: replies have been written.
pub(super) fn on_slept(waiting: &Waiting) {
    let mut tellings = waiting.tellings.borrow_mut();
    if tellings.by_box.is_empty() {
        return;
    }
    tellings.by_box.clear();
    tellings.by_client.clear();
}

/// `client` is being closed, and has not read the letters that it got since the event loop slept.
pub(super) fn on_closed(waiting: &Waiting, client: u64) {
    let mut tellings = waiting.tellings.borrow_mut();
    let boxes: Vec<BoxId> = tellings.boxes_of(client).collect();
    for id in boxes {
        tellings.by_client.remove(&(client, id));
        let Some(telling) = tellings.by_box.get_mut(&id) else {
            continue;
        };
        telling.to.retain(|(other, _)| *other != client);
        let last = telling.to.iter().map(|(_, told)| *told).max();
        let told = last.unwrap_or(telling.before);
        waiting.post.mail.borrow_mut().undeliver(id, told);
    }
}
