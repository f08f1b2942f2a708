//! A cluster node that owns all slots, where a command can open only its own key. The other tests can run on such a node, too
//! (`MORTISE_CLUSTER`).

use mortise_harness::{Cluster, Conn, Server, array, as_map, cmd, int, text, waiter};

/// Keys in distant slots.
const KEYS: [&str; 3] = ["a", "b", "zzz"];

fn node() -> (Cluster, Conn) {
    let cluster = Cluster::start(1, Server::builder);
    let conn = cluster.primaries[0].connect();
    let slots = KEYS.map(|key| cluster.slot_of(key));
    assert!(slots[0] != slots[1] && slots[1] != slots[2] && slots[0] != slots[2]);
    (cluster, conn)
}

#[test]
fn top_in_a_transaction_of_another_slot_shows_the_holders() {
    let (cluster, mut conn) = node();
    let server = &cluster.primaries[0];
    int(&cmd!(conn, "LOCK.WLOCK a A 60000"));
    for reader in ["R", "S"] {
        int(&cmd!(conn, "LOCK.RLOCK b {reader} 60000"));
    }
    let _waiting =
        ["a", "b", "b"].map(|key| waiter!(server, "LOCK.WLOCK {key} W 60000 WAIT 0 HOLDS 1"));
    cmd!(conn, "MULTI");
    cmd!(conn, "GET zzz");
    cmd!(conn, "LOCK.TOP");
    let replies = cmd!(conn, "EXEC");
    let top = array(&array(&replies)[1]).iter().map(as_map);
    let told: Vec<(String, String, i64)> = top
        .map(|lock| {
            let name = |field| text(&lock[field]);
            (name("key"), name("mode"), int(&lock["holders"]))
        })
        .collect();
    let expected = [("b", "read", 2), ("a", "write", 1)];
    assert_eq!(
        told,
        expected.map(|(key, mode, holders)| (key.to_owned(), mode.to_owned(), holders))
    );
}
