//! Tests of parts that need a whole client, which connects to nothing.

use std::sync::Arc;

use crate::Client;
use crate::lock::mailboxes::{Mailboxes, PeerMailbox};
use crate::net::Peer;

#[tokio::test]
async fn a_box_is_kept_while_a_request_waits_there_or_its_process_has_slots() {
    let client = |port| {
        let client = Client::builder(format!("redis://127.0.0.1:{port}/"));
        let client = client.expect("an address").build();
        client.expect("it does not connect")
    };
    let own = client(1);
    let endpoint = &own.0.endpoint;
    let process = |port| client(port).0.endpoint.route(b"k").peer;
    let mut all = Mailboxes::default();
    let mut add = |peer: &Arc<Peer>| {
        let added = PeerMailbox::new(endpoint, peer.clone(), b"k");
        all.by_peer.insert(peer.id, added.clone());
        added
    };
    let awaited = add(&process(2));
    let served = process(3);
    drop(add(&served));
    drop(add(&process(4)));
    all.forget_unused();
    let mut kept: Vec<u64> = all.by_peer.into_keys().collect();
    kept.sort_unstable();
    assert_eq!(kept, [awaited.peer.id, served.id]);
}
