//! Letters that clients were told in this turn of the event loop, and may never read.
//!
//! A client that the server is about to close is replied to like any other, and the reply is thrown away (see
//! [`undelivered`](crate::waiting::undelivered), which has the same question for blocked requests). Its letters count as
//! not told, unless another client was told them.

use std::collections::HashMap;

use mortise_core::mail::{BoxId, Mail, Told};

use crate::state::ROOM_KEPT;

/// What the boxes were told since the event loop slept.
#[derive(Debug, Default)]
pub(crate) struct Tellings {
    by_box: HashMap<BoxId, Telling>,
    /// By the id of the client, which box it was told of last.
    by_client: HashMap<u64, BoxId>,
}

#[derive(Debug)]
struct Telling {
    /// What was told before this turn.
    before: Told,
    /// Clients, and up to where each was told.
    to: Vec<(u64, Told)>,
}

impl Tellings {
    /// `client` was told letters of the box, of which `before` had been told.
    pub(crate) fn add(&mut self, mail: &Mail, id: BoxId, before: Told, client: u64) {
        let telling = self.by_box.entry(id).or_insert(Telling {
            before,
            to: Vec::new(),
        });
        telling.to.retain(|(other, _)| *other != client);
        telling.to.push((client, mail.told(id)));
        self.by_client.insert(client, id);
    }

    /// `client` was told letters.
    pub(crate) fn knows(&self, client: u64) -> bool {
        self.by_client.contains_key(&client)
    }

    /// The event loop slept: replies have been written.
    pub(crate) fn on_slept(&mut self) {
        if self.by_box.is_empty() {
            return;
        }
        self.by_box.clear();
        self.by_box.shrink_to(ROOM_KEPT);
        self.by_client.clear();
        self.by_client.shrink_to(ROOM_KEPT);
    }

    /// `client` is closed, and has not read what it was told.
    pub(crate) fn on_closed(&mut self, mail: &mut Mail, client: u64) {
        let Some(id) = self.by_client.remove(&client) else {
            return;
        };
        let Some(telling) = self.by_box.get_mut(&id) else {
            return;
        };
        telling.to.retain(|(other, _)| *other != client);
        let last = telling.to.iter().map(|(_, told)| *told).max();
        mail.untell(id, last.unwrap_or(telling.before));
    }
}
