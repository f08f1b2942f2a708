//! Requests by mail when keys change, slots move and writes are refused.

use mortise_harness::{
    Cluster, Server, assert_error, begin_migration, cmd, end_migration, eventually, holders_of,
    mail, migrate, queue, queue_of, try_cmd,
};

#[test]
fn a_deleted_key_lets_the_next_request_in() {
    let (_server, mut a) = Server::start_connected();
    for (key, gone) in [("del", "DEL"), ("unlink", "UNLINK")] {
        cmd!(a, "LOCK.ACQUIRE {key} a 60000");
        queue!(a, "box", "LOCK.ACQUIRE {key} b 60000");
        cmd!(a, "{gone} {key}");
        assert_eq!(holders_of(&mut a, key), ["b"]);
    }
    cmd!(a, "FLUSHALL");
    assert_eq!(
        mail!(a, "box").results(),
        [("b", "granted"), ("b", "granted")]
    );
}

#[test]
fn a_key_that_becomes_another_type_refuses_the_request_by_a_letter() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    cmd!(a, "SET key text");
    let told = mail!(a, "box WAIT 0");
    let letter = told.only();
    assert_eq!(letter.result, "refused");
    let error = letter.error.as_deref().unwrap();
    assert!(error.starts_with("WRONGTYPE "), "{error}");
}

#[test]
fn requests_by_mail_wait_while_writes_are_refused_and_letters_come_afterwards() {
    let (_server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.ACQUIRE key a 200");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    cmd!(a, "CONFIG SET min-replicas-to-write 1");
    eventually("the lease is over", || holders_of(&mut a, "key").is_empty());
    assert_eq!(mail!(a, "box WAIT 300").letters, []);
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    cmd!(a, "CONFIG SET min-replicas-to-write 0");
    assert_eq!(mail!(a, "box WAIT 0").results(), [("b", "granted")]);
}

#[test]
fn requests_by_mail_wait_until_the_grace_ends() {
    let (_server, mut a) = Server::configured("lock.grace 1200");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    let told = eventually("the grace ends", || {
        let told = mail!(a, "box WAIT 0");
        (!told.letters.is_empty()).then_some(told)
    });
    assert_eq!(told.results(), [("b", "granted")]);
}

#[test]
fn a_slot_that_moves_away_refuses_the_request_by_a_letter() {
    let cluster = Cluster::start(2, Server::builder);
    let (from, to) = (cluster.home_of("key"), 1 - cluster.home_of("key"));
    let nodes: Vec<&Server> = cluster.nodes().collect();
    let mut a = nodes[from].connect();
    // The box's slot stays.
    let name = (0..)
        .map(|i| format!("box{{{i}}}"))
        .find(|name| {
            cluster.home_of(name) == from && cluster.slot_of(name) != cluster.slot_of("key")
        })
        .unwrap();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, &name, "LOCK.ACQUIRE key b 60000");
    let slot = cluster.slot_of("key");
    begin_migration(slot, nodes[from], nodes[to]);
    migrate("key", nodes[from], nodes[to]);
    end_migration(slot, nodes[from], nodes[to]);
    let told = eventually("it is refused", || {
        let told = mail!(a, "{name} WAIT 0");
        (!told.letters.is_empty()).then_some(told)
    });
    let error = told.only().error.as_deref().unwrap();
    assert!(error.starts_with("UNBLOCKED "), "{error}");
    assert_error(try_cmd!(nodes[to].connect(), "LOCK.MAIL {name}"), "MOVED ");
}
