//! Clients contend by mail while connections, readers and the server fail. Two are never inside together, and no lock stays taken for
//! ever.

use std::time::Duration;

use mortise_harness::{
    Builder, Cluster, Conn, Dice, Link, Server, begin_migration, cmd, end_migration, eventually,
    migrate, try_cmd, wait_for_sync,
};

use crate::contender::{Crowd, KEY, LEASE};

const ROUNDS: usize = 6;

fn server() -> Builder {
    Server::builder().module_arg("mail-timeout", "1500")
}

/// How long a fault lasts: longer than a client waits for a reply, shorter than a box lives.
const FAULT: Duration = Duration::from_millis(600);

/// Four clients, each over a link of its own.
fn crowd_over_links(server: &Server) -> (Vec<Link>, Crowd) {
    let links: Vec<Link> = (0..4).map(|_| Link::to(server)).collect();
    let crowd = Crowd::start(links.iter().map(Link::port));
    (links, crowd)
}

/// Lets time pass during a fault, which has no event to await.
fn pass(conn: &mut Conn, time: Duration) {
    assert!(conn.recv_within(time).is_none());
}

#[test]
fn no_two_are_inside_when_replies_are_lost_on_both_connections() {
    let server = server().start();
    let (links, crowd) = crowd_over_links(&server);
    let mut conn = server.connect();
    let mut dice = Dice::new(1);
    for _ in 0..ROUNDS {
        crowd.await_stints(3);
        let link = dice.pick(&links);
        link.cut();
        pass(&mut conn, FAULT);
        link.mend();
    }
    crowd.await_stints(4);
    crowd.ends_well(&mut conn);
}

#[test]
fn no_two_are_inside_when_messages_are_late_in_either_direction() {
    let server = server().start();
    let (links, crowd) = crowd_over_links(&server);
    let mut conn = server.connect();
    let mut dice = Dice::new(2);
    for round in 0..ROUNDS {
        crowd.await_stints(3);
        let link = dice.pick(&links);
        let late = Duration::from_millis(1_000);
        match round % 2 {
            0 => link.delay_stream(late),
            _ => link.delay_acknowledgements(late),
        }
        pass(&mut conn, FAULT);
        link.delay_stream(Duration::ZERO);
        link.delay_acknowledgements(Duration::ZERO);
    }
    crowd.await_stints(4);
    crowd.ends_well(&mut conn);
}

#[test]
fn no_two_are_inside_when_connections_are_killed() {
    let server = server().start();
    let crowd = Crowd::start([server.port(); 4]);
    let mut conn = server.connect();
    for _ in 0..3 * ROUNDS {
        crowd.await_stints(1);
        cmd!(conn, "CLIENT KILL TYPE normal SKIPME yes");
    }
    crowd.await_stints(4);
    crowd.ends_well(&mut conn);
}

#[test]
fn no_two_are_inside_when_clients_vanish_without_closing() {
    let server = server().start();
    let (links, crowd) = crowd_over_links(&server);
    let mut conn = server.connect();
    crowd.await_stints(4);
    // The two send no FIN: their holds last for their leases, and their requests go with their boxes.
    links[0].cut();
    links[1].cut();
    crowd.await_stints(8);
    crowd.ends_well(&mut conn);
}

#[test]
fn no_two_are_inside_with_a_second_reader_of_every_box() {
    let server = server().start();
    let crowd = Crowd::start([server.port(); 4]);
    let mut conn = server.connect();
    let mut dice = Dice::new(3);
    for _ in 0..60 {
        let name = format!("c{}", dice.roll(4));
        // It takes the letters and the wait from the first reader, and forgets no letter.
        let wait = dice.roll(30);
        let _ = try_cmd!(conn, "LOCK.MAIL", &name, "WAIT", wait + 1);
    }
    crowd.await_stints(8);
    crowd.ends_well(&mut conn);
}

#[test]
fn no_two_are_inside_when_the_server_is_killed_and_restarted() {
    let mut server = server()
        .config("appendonly", "yes")
        .config("appendfsync", "always")
        .start();
    let crowd = Crowd::start([server.port(); 4]);
    for _ in 0..3 {
        crowd.await_stints(3);
        server.sigkill();
        server.start_again();
        crowd.go_to(server.port());
    }
    crowd.await_stints(4);
    crowd.ends_well(&mut server.connect());
}

#[test]
fn no_two_are_inside_when_the_server_is_frozen_for_a_while() {
    let server = server().start();
    let crowd = Crowd::start([server.port(); 4]);
    let mut conn = server.connect();
    for _ in 0..4 {
        crowd.await_stints(2);
        server.stop_signal();
        pass(&mut conn, FAULT);
        server.cont_signal();
    }
    crowd.await_stints(4);
    crowd.ends_well(&mut conn);
}

#[test]
fn no_two_are_inside_when_the_primary_role_moves_to_the_replica_and_back() {
    let one = server().start();
    let other = server().replica_of(&one).start();
    wait_for_sync(&one, &other);
    let crowd = Crowd::start([one.port(); 4]);
    let (mut primary, mut replica) = (&one, &other);
    for _ in 0..3 {
        crowd.await_stints(3);
        cmd!(primary.connect(), "FAILOVER");
        eventually("the roles change", || {
            let info = replica.info("replication");
            info["role"] == "master"
        });
        std::mem::swap(&mut primary, &mut replica);
        crowd.go_to(primary.port());
        wait_for_sync(primary, replica);
    }
    crowd.await_stints(4);
    crowd.ends_well(&mut primary.connect());
}

#[test]
fn no_two_are_inside_when_a_slot_moves_to_another_node() {
    let cluster = Cluster::start(2, server);
    let nodes: Vec<&Server> = cluster.nodes().collect();
    let mut home = cluster.home_of(KEY);
    let slot = cluster.slot_of(KEY);
    // The boxes are in the key's slot.
    let crowd = Crowd::start_with_boxes([nodes[home].port(); 4], "{key}");
    for _ in 0..2 {
        crowd.await_stints(3);
        let (from, to) = (nodes[home], nodes[1 - home]);
        begin_migration(slot, from, to);
        migrate(KEY, from, to);
        end_migration(slot, from, to);
        home = 1 - home;
        crowd.go_to(to.port());
    }
    crowd.await_stints(4);
    crowd.ends_well(&mut nodes[home].connect());
}

#[test]
fn no_two_are_inside_when_boxes_close_and_are_made_again() {
    // A fault lasts longer than a box lives.
    let server = Server::builder().module_arg("mail-timeout", "800").start();
    let (links, crowd) = crowd_over_links(&server);
    let mut conn = server.connect();
    for link in links.iter().chain(&links[..2]) {
        crowd.await_stints(2);
        link.cut();
        pass(&mut conn, LEASE);
        link.mend();
    }
    crowd.await_stints(4);
    crowd.ends_well(&mut conn);
}
