//! The boxes of one client, each at a server process.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use crate::net::{Endpoint, Peer};
use crate::value::{lock, random};
use crate::wire::{Mailbox, Name, slots};

/// The boxes of one client, by the number of the process that serves each.
#[derive(Default)]
pub(super) struct Mailboxes {
    pub(super) by_peer: HashMap<u64, Arc<PeerMailbox>>,
    pub(super) is_closed: bool,
}

/// A box at a server process, and the requests that wait for its letters.
#[derive(Debug)]
pub(super) struct PeerMailbox {
    pub(super) peer: Arc<Peer>,
    pub(super) name: Box<[u8]>,
    pub(super) mailbox: Mutex<Mailbox>,
}

impl Mailboxes {
    /// Ends what is under way in all boxes. The names that may hold or wait for something.
    pub(super) fn close(all: &Mutex<Mailboxes>) -> Vec<Name> {
        let boxes = {
            let mut all = lock(all);
            all.is_closed = true;
            mem::take(&mut all.by_peer)
        };
        let mut names = Vec::new();
        for mailbox in boxes.into_values() {
            let ended = lock(&mailbox.mailbox).close();
            names.extend(ended.unwanted);
            ended.wakers.into_iter().for_each(Waker::wake);
        }
        names
    }

    /// Forgets the boxes of processes that have no slots any more, whose connections would stay open otherwise.
    pub(super) fn forget_unused(&mut self) {
        self.by_peer
            .retain(|_, it| Arc::strong_count(it) > 1 || Arc::strong_count(&it.peer) > 1);
    }
}

impl PeerMailbox {
    /// A box at a process that serves `key`.
    pub(super) fn new(endpoint: &Endpoint, peer: Arc<Peer>, key: &[u8]) -> Arc<PeerMailbox> {
        let uuid = random::uuid();
        let name = match endpoint.is_cluster() {
            // Routed like a key: to where this one is.
            true => format!("{{{}}}{uuid}", slots::tag(slots::slot(key))),
            false => uuid.to_string(),
        };
        Arc::new(PeerMailbox {
            peer,
            name: name.into_bytes().into(),
            mailbox: Mutex::default(),
        })
    }
}
