//! Many clients that each acquire several keys at once, and readers of all keys.

use mortise_harness::{Bundles, Server};

#[test]
fn no_read_of_all_keys_sees_a_part_of_a_grant_while_a_hundred_clients_contend() {
    let (server, mut conn) = Server::start_connected();
    let bundles = Bundles::start(server.port(), 100);
    let mut holding = 0;
    while bundles.grants() < 3_000 {
        holding += Bundles::assert_whole(&mut conn);
    }
    bundles.stop();
    assert!(holding > 0);
    assert_eq!(Bundles::assert_whole(&mut conn), 0);
    assert_eq!(server.gauge("waiters"), 0);
}
