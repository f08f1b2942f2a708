//! A node that hides which slots it has: the module takes each for one that moves.

use mortise_harness::{Cluster, Server, Shutdown, cmd, eventually, int, try_cmd};

#[test]
fn several_keys_are_refused_by_a_node_that_hides_its_slots() {
    let mut cluster = Cluster::start(1, Server::builder);
    let server = &mut cluster.primaries[0];
    server.set_config("rename-command", "CLUSTER \"\"");
    server.restart(Shutdown::NoSave);
    let mut conn = server.connect();
    let reply = eventually("the node serves its slots", || {
        match try_cmd!(conn, "LOCK.MACQUIRE", "a", 1_000, 2, "{k}1", "{k}2") {
            Err(error) if error.starts_with("CLUSTERDOWN ") => Err(error),
            other => Ok(other),
        }
    });
    let error = reply.expect_err("refused");
    assert!(error.starts_with("TRYAGAIN "), "{error}");
    assert_eq!(server.info("lock")["lock_hidden_settings"], "CLUSTER NODES");
    assert!(server.log().contains("the server hides CLUSTER NODES"));
    // One key needs no slot.
    int(&cmd!(conn, "LOCK.ACQUIRE", "{k}1", "a", 1_000));
    int(&cmd!(conn, "LOCK.ACQUIRE", "{k}1", "b", 1_000, "WAIT", 0));
}
