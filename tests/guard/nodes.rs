//! In a cluster, servers and clients treat the keys of the guard and of its command as those of one command.

use mortise_harness::redis::cluster::ClusterClient;
use mortise_harness::{
    Cluster, Conn, Server, array, asking, assert_error, begin_migration, cmd, command,
    end_migration, eventually, int, migrate, refused, text, try_cmd,
};

use super::held;

fn keys(conn: &mut Conn, inside: &str) -> Vec<String> {
    let found = cmd!(conn, "COMMAND GETKEYS LOCK.GUARD key a 1 {inside}");
    let mut keys: Vec<String> = array(&found).iter().map(text).collect();
    // Each server has its own order.
    keys[1..].sort();
    keys
}

#[test]
fn the_server_knows_the_keys_of_both_commands() {
    let (_server, mut conn) = Server::start_connected();
    for (inside, expected) in [
        ("", "key"),
        ("PING", "key"),
        ("GET x", "key x"),
        ("MSET x 1 y 2 key 3", "key key x y"),
        ("OBJECT ENCODING x", "key x"),
        ("ZUNIONSTORE to 2 x y", "key to x y"),
        ("XREAD STREAMS x y 0 0", "key x y"),
        ("LOCK.ACQUIRE x b 1", "key x"),
        // These commands are refused when they run.
        ("NOSUCH x", "key"),
        ("GET", "key"),
        ("ZUNIONSTORE to 1000 x", "key"),
        ("LOCK.GUARD x b 1 GET y", "key x"),
    ] {
        assert_eq!(keys(&mut conn, inside).join(" "), expected, "{inside}");
    }
    let described = cmd!(conn, "COMMAND GETKEYSANDFLAGS LOCK.GUARD key a 1 SET x 1");
    for (key, [access, use_of_it]) in array(&described)
        .iter()
        .zip([["RO", "access"], ["OW", "update"]])
    {
        let flags: Vec<String> = array(&array(key)[1]).iter().map(text).collect();
        assert!(flags.contains(&access.to_owned()), "{flags:?}");
        assert!(flags.contains(&use_of_it.to_owned()), "{flags:?}");
    }
}

#[test]
fn guards_with_keys_of_two_slots_are_refused_like_any_command() {
    let cluster = Cluster::start(1, Server::builder);
    let mut conn = cluster.primaries[0].connect();
    let token = held(&mut conn, "{a}lock");
    cmd!(conn, "LOCK.GUARD {{a}}lock a {token} SET {{a}}data 1");
    let guard = format!("LOCK.GUARD {{a}}lock a {token}");
    for inside in ["SET {b}data 1", "MSET {a}data 1 {b}data 1"] {
        refused!(conn, "CROSSSLOT ", "{guard} {inside}");
    }
    // Also commands without a key, and commands on locks.
    for inside in ["PING", "LOCK.RELEASE {a}lock a"] {
        cmd!(conn, "{guard} {inside}");
    }
}

#[test]
fn a_script_may_guard_only_keys_in_the_slot_of_its_own() {
    let cluster = Cluster::start(1, Server::builder);
    let mut conn = cluster.primaries[0].connect();
    let token = held(&mut conn, "{a}lock");
    let script = "return redis.call('LOCK.GUARD', KEYS[1], 'a', ARGV[1], 'SET', ARGV[2], '1')";
    let inside = try_cmd!(conn, "EVAL", script, 1, "{a}lock", token, "{a}data");
    assert_eq!(text(&inside.unwrap()), "OK");
    assert!(try_cmd!(conn, "EVAL", script, 1, "{a}lock", token, "{b}data").is_err());
    assert_eq!(int(&cmd!(conn, "EXISTS {{b}}data")), 0);
}

#[test]
fn a_cluster_client_sends_a_guard_to_the_right_node_and_follows_the_slot() {
    let cluster = Cluster::start(2, Server::builder);
    let home = cluster.home_of("{a}lock");
    let (from, to) = (&cluster.primaries[home], &cluster.primaries[1 - home]);
    let slot = cluster.slot_of("{a}lock");
    let client = ClusterClient::new(vec![to.url()]).unwrap();
    let mut client = client.get_connection().unwrap();
    let acquire = command!("LOCK.ACQUIRE {{a}}lock a 600000");
    let token: i64 = acquire.query(&mut client).unwrap();
    let guard = command!("LOCK.GUARD {{a}}lock a {token} INCR {{a}}data");
    assert_eq!(guard.query::<i64>(&mut client), Ok(1));
    assert_error(to.connect().try_run(&guard), "MOVED ");

    begin_migration(slot, from, to);
    let mut conn = from.connect();
    assert_eq!(int(&conn.run(&guard)), 2, "both keys are still here");
    migrate("{a}data", from, to);
    assert_error(conn.try_run(&guard), "TRYAGAIN ");
    assert_error(asking(&mut to.connect(), &guard), "TRYAGAIN ");
    migrate("{a}lock", from, to);
    assert_error(conn.try_run(&guard), "ASK ");
    assert_eq!(int(&asking(&mut to.connect(), &guard).unwrap()), 3);
    assert_eq!(guard.query::<i64>(&mut client), Ok(4));
    end_migration(slot, from, to);
    assert_eq!(guard.query::<i64>(&mut client), Ok(5));
    let late = command!("LOCK.GUARD", "{a}lock", "a", token - 1, "INCR", "{a}data");
    assert!(late.query::<i64>(&mut client).is_err());
    assert_error(from.connect().try_run(&guard), "MOVED ");
}

#[test]
fn a_cluster_that_is_down_refuses_guards() {
    let cluster = Cluster::start(2, || {
        Server::builder().config("cluster-node-timeout", "1000")
    });
    let home = cluster.home_of("{a}lock");
    let mut conn = cluster.primaries[home].connect();
    let token = held(&mut conn, "{a}lock");
    cluster.primaries[1 - home].stop_signal();
    eventually("the majority is gone", || {
        try_cmd!(conn, "SET {{a}}data 1").is_err()
    });
    let guard = format!("LOCK.GUARD {{a}}lock a {token}");
    refused!(conn, "CLUSTERDOWN ", "{guard} GET {{a}}data");
    cluster.primaries[1 - home].cont_signal();
}
