//! Cluster: commands are routed by their key.

use mortise_harness::{Cluster, Server, array, cmd, command, redis::Cmd, text, try_cmd};

/// Every command with a key, on the key `key`.
fn keyed_commands() -> Vec<Cmd> {
    vec![
        command!("LOCK.ACQUIRE key a 1000 WAIT 10 HOLDS 1 FENCE 1"),
        command!("LOCK.WLOCK", "key", "a", 1_000),
        command!("LOCK.RLOCK", "key", "a", 1_000),
        command!("LOCK.RENEW", "key", "a", 1_000, "TOKEN", 1),
        command!("LOCK.PASS", "key", "a", "b", 1_000, "TOKEN", 1),
        command!("LOCK.FENCE", "key", "a", 1),
        command!("LOCK.RELEASE", "key", "a", "WRITE", "HOLDS", 0, "TOKEN", 1),
        command!("LOCK.INFO", "key", "OWNER", "a"),
    ]
}

fn words(command: &Cmd) -> Vec<String> {
    let words = command.args_iter().map(|word| match word {
        mortise_harness::redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    });
    words.collect()
}

#[test]
fn the_server_knows_the_key_of_every_command() {
    let server = Server::start();
    let mut conn = server.connect();
    for command in keyed_commands() {
        let mut question = command!("COMMAND", "GETKEYS");
        question.arg(words(&command));
        let keys = conn.run(&question);
        let keys: Vec<String> = array(&keys).iter().map(text).collect();
        assert_eq!(keys, ["key"], "{:?}", words(&command));
    }
    let error = try_cmd!(conn, "COMMAND", "GETKEYS", "LOCK.TOP", "COUNT", 3).unwrap_err();
    assert!(error.contains("no key"), "{error}");
}

#[test]
fn a_node_without_the_slot_redirects_to_the_node_that_has_it() {
    let cluster = Cluster::start(3, Server::builder);
    let home = cluster.home_of("key");
    let (slot, port) = (cluster.slot_of("key"), cluster.primaries[home].port());
    let moved = format!("MOVED {slot} 127.0.0.1:{port}");
    for (n, server) in cluster.primaries.iter().enumerate() {
        let mut conn = server.connect();
        for command in keyed_commands() {
            let reply = conn.try_run(&command);
            if n == home {
                assert!(reply.is_ok(), "{reply:?}");
            } else {
                assert_eq!(reply.unwrap_err(), moved, "{:?}", words(&command));
            }
        }
        // It has no key, so every node replies for itself.
        cmd!(conn, "LOCK.TOP");
    }
}
