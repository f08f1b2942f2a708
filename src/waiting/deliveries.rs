//! Letters that were delivered to clients in this turn of the event loop, and may never be read.
//!
//! The module replies to a client that the server is about to close as to any other, and the server throws the reply away (`undelivered`
//! solves the same problem for blocked requests). Its letters count as undelivered, unless another client got them.

use mortise_core::mail::{BoxId, Delivered, Mail};

use crate::waiting::state::{Deliveries, Delivery, Waiting};

impl Deliveries {
    fn boxes_of(&self, client: u64) -> impl Iterator<Item = BoxId> {
        let range = (client, BoxId(0))..=(client, BoxId(u64::MAX));
        self.by_client.range(range).map(|(_, id)| *id)
    }
}

/// `client` got letters of the box, of which those up to `before` had been delivered.
pub(super) fn add(waiting: &Waiting, mail: &Mail, client: u64, id: BoxId, before: Delivered) {
    let mut deliveries = waiting.deliveries.borrow_mut();
    let delivery = deliveries.by_box.entry(id).or_insert(Delivery {
        before,
        to: Vec::new(),
    });
    delivery.to.retain(|(other, _)| *other != client);
    delivery.to.push((client, mail.delivered(id)));
    deliveries.by_client.insert((client, id));
}

/// Whether `client` got letters since the event loop slept.
pub(super) fn knows(waiting: &Waiting, client: u64) -> bool {
    let deliveries = waiting.deliveries.borrow();
    deliveries.boxes_of(client).next().is_some()
}

/// The event loop slept: replies have been written.
pub(super) fn on_slept(waiting: &Waiting) {
    let mut deliveries = waiting.deliveries.borrow_mut();
    if deliveries.by_box.is_empty() {
        return;
    }
    deliveries.by_box.clear();
    deliveries.by_client.clear();
}

/// `client` is being closed, and has not read the letters that it got since the event loop slept.
pub(super) fn on_closed(waiting: &Waiting, client: u64) {
    let mut deliveries = waiting.deliveries.borrow_mut();
    let boxes: Vec<BoxId> = deliveries.boxes_of(client).collect();
    for id in boxes {
        deliveries.by_client.remove(&(client, id));
        let Some(delivery) = deliveries.by_box.get_mut(&id) else {
            continue;
        };
        delivery.to.retain(|(other, _)| *other != client);
        let last = delivery.to.iter().map(|(_, delivered)| *delivered).max();
        let delivered = last.unwrap_or(delivery.before);
        waiting.post.mail.borrow_mut().undeliver(id, delivered);
    }
}
