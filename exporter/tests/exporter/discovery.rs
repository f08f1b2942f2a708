//! Servers that the exporter finds by itself: the nodes of a cluster, and those that Sentinels watch.

use mortise_harness::{Cluster, Server, cmd, eventually, wait_for_sync};

use crate::probe::{Exporter, Samples};

fn label(server: &Server) -> String {
    format!("server=\"{}\"", server.addr())
}

/// The servers on a page, those that answer and those that do not.
fn told_of(samples: &Samples) -> usize {
    let names = samples.names();
    names.iter().filter(|name| **name == "mortise_up").count()
}

#[test]
fn all_nodes_of_a_cluster_are_served_even_if_the_named_one_is_gone() {
    let mut cluster = Cluster::start_with_replicas(2, Server::builder);
    let seeds = format!("127.0.0.1:1,{}", cluster.replicas[0].addr());
    let exporter = Exporter::with(&["--cluster", &seeds]);
    let samples = exporter.scrape();
    assert_eq!(samples.one("mortise_discovery_up"), 1.0);
    assert_eq!(told_of(&samples), 4);
    for (servers, primary) in [(&cluster.primaries, 1.0), (&cluster.replicas, 0.0)] {
        for server in servers {
            assert_eq!(samples.of("mortise_primary", &label(server)), primary);
        }
    }
    // The named node has gone, but the others know the cluster.
    cluster.replicas[0].sigkill();
    let samples = exporter.scrape();
    assert_eq!(samples.of("mortise_up", &label(&cluster.replicas[0])), 0.0);
    assert_eq!(samples.one("mortise_discovery_up"), 1.0);
    assert_eq!(told_of(&samples), 4);
    // The exporter follows a failover.
    let next = &cluster.replicas[1];
    cmd!(next.connect(), "CLUSTER", "FAILOVER");
    eventually("the replica is the primary", || {
        exporter.scrape().of("mortise_primary", &label(next)) == 1.0
    });
}

#[test]
fn a_primary_and_its_replicas_are_found_through_sentinels() {
    let secret = || {
        Server::builder()
            .config("requirepass", "secret")
            .config("masterauth", "secret")
    };
    let first = secret().start();
    let replica = secret().replica_of(&first).start();
    let second = secret().start();
    wait_for_sync(&first, &replica);
    // This Sentinel asks for no password.
    let mut sentinel = Server::builder()
        .sentinel()
        .watching("mine", first.port(), 1)
        .start();
    let mut conn = sentinel.connect();
    cmd!(conn, "SENTINEL", "SET", "mine", "auth-pass", "secret");
    let seeds = format!("mine@127.0.0.1:1,{}", sentinel.addr());
    let exporter = Exporter::with_password(&["--sentinel", &seeds], Some("secret"));
    eventually("the replica is known", || {
        let samples = exporter.scrape();
        samples
            .0
            .get(&format!("mortise_primary{{{}}}", label(&replica)))
            == Some(&0.0)
    });
    let samples = exporter.scrape();
    assert_eq!(samples.of("mortise_primary", &label(&first)), 1.0);
    assert_eq!(told_of(&samples), 2);

    // The name means another server, as after a failover.
    cmd!(conn, "SENTINEL", "REMOVE", "mine");
    let samples = exporter.scrape();
    assert_eq!(samples.one("mortise_discovery_up"), 0.0);
    assert_eq!(samples.of("mortise_up", &label(&first)), 1.0);
    let port = second.port();
    cmd!(conn, "SENTINEL", "MONITOR", "mine", "127.0.0.1", port, 1);
    let samples = exporter.scrape();
    assert_eq!(samples.one("mortise_discovery_up"), 1.0);
    assert_eq!(samples.of("mortise_up", &label(&second)), 1.0);
    assert_eq!(told_of(&samples), 1);

    // If no Sentinel answers, the servers known before stay.
    sentinel.sigkill();
    let samples = exporter.scrape();
    assert_eq!(samples.one("mortise_discovery_up"), 0.0);
    assert_eq!(samples.of("mortise_up", &label(&second)), 1.0);
}

#[test]
fn a_server_that_hangs_does_not_delay_the_others() {
    let cluster = Cluster::start(2, Server::builder);
    let alone = Server::start();
    let nodes = [&cluster.primaries[0], &cluster.primaries[1]].map(Server::addr);
    let seeds = nodes.join(",");
    let args = [
        "--cluster",
        &seeds,
        "--server",
        &alone.addr(),
        "--timeout",
        "4",
    ];
    let exporter = Exporter::with(&args);
    cluster.primaries[0].stop_signal();
    let samples = exporter.scrape();
    cluster.primaries[0].cont_signal();
    assert_eq!(samples.one("mortise_discovery_up"), 1.0);
    assert_eq!(samples.of("mortise_up", &label(&cluster.primaries[0])), 0.0);
    assert_eq!(samples.of("mortise_up", &label(&cluster.primaries[1])), 1.0);
    assert_eq!(samples.of("mortise_up", &label(&alone)), 1.0);
}

#[test]
fn a_server_found_in_several_ways_is_served_once() {
    let cluster = Cluster::start(1, Server::builder);
    let addr = cluster.primaries[0].addr();
    let args = ["--cluster", &addr, "--server", &addr, "--server", &addr];
    assert_eq!(Exporter::with(&args).scrape().one("mortise_up"), 1.0);
}

#[test]
fn a_server_that_is_no_node_of_a_cluster_knows_none() {
    let server = Server::start();
    let samples = Exporter::with(&["--cluster", &server.addr()]).scrape();
    assert_eq!(samples.one("mortise_discovery_up"), 0.0);
    assert_eq!(told_of(&samples), 0);
}
