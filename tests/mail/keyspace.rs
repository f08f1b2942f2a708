//! Requests by mail when keys change, slots move and writes are refused.

use mortise_harness::{
    Cluster, Server, begin_migration, cmd, end_migration, eventually, holders_of, mail, queue,
    queue_of, try_cmd,
};

#[test]
fn a_deleted_key_lets_the_next_request_in() {
    let server = Server::start();
    let mut a = server.connect();
    for (key, gone) in [("del", "DEL"), ("unlink", "UNLINK")] {
        cmd!(a, "LOCK.ACQUIRE", key, "a", 60_000);
        queue!(a, "box", "LOCK.ACQUIRE", key, "b", 60_000);
        cmd!(a, gone, key);
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
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    queue!(a, "box", "LOCK.ACQUIRE", "key", "b", 60_000);
    cmd!(a, "SET", "key", "text");
    let told = mail!(a, "box", "WAIT", 0);
    let letter = told.only();
    assert_eq!(letter.result, "refused");
    assert!(
        letter.error.as_ref().unwrap().starts_with("WRONGTYPE "),
        "{letter:?}"
    );
}

#[test]
fn requests_by_mail_wait_while_writes_are_refused_and_letters_come_afterwards() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 200);
    queue!(a, "box", "LOCK.ACQUIRE", "key", "b", 60_000);
    cmd!(a, "CONFIG", "SET", "min-replicas-to-write", 1);
    eventually("the lease is over", || holders_of(&mut a, "key").is_empty());
    assert_eq!(mail!(a, "box", "WAIT", 300).letters, []);
    assert_eq!(queue_of(&mut a, "key"), ["b"]);
    cmd!(a, "CONFIG", "SET", "min-replicas-to-write", 0);
    assert_eq!(mail!(a, "box", "WAIT", 0).results(), [("b", "granted")]);
}

#[test]
fn requests_by_mail_wait_until_the_grace_ends() {
    let server = Server::builder().module_arg("grace", "1200").start();
    let mut a = server.connect();
    queue!(a, "box", "LOCK.ACQUIRE", "key", "b", 60_000);
    let told = eventually("the grace ends", || {
        let told = mail!(a, "box", "WAIT", 0);
        (!told.letters.is_empty()).then_some(told)
    });
    assert_eq!(told.results(), [("b", "granted")]);
}

#[test]
fn a_letter_names_the_database() {
    let server = Server::start();
    let mut a = server.connect();
    cmd!(a, "SELECT", 3);
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    queue!(a, "box", "LOCK.ACQUIRE", "key", "b", 60_000);
    cmd!(a, "LOCK.RELEASE", "key", "a");
    cmd!(a, "SELECT", 0);
    assert_eq!(mail!(a, "box").only().db, 3);
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
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    queue!(a, &name, "LOCK.ACQUIRE", "key", "b", 60_000);
    let slot = cluster.slot_of("key");
    begin_migration(slot, nodes[from], nodes[to]);
    mortise_harness::migrate("key", nodes[from], nodes[to]);
    end_migration(slot, nodes[from], nodes[to]);
    let told = eventually("it is refused", || {
        let told = mail!(a, &name, "WAIT", 0);
        (!told.letters.is_empty()).then_some(told)
    });
    assert!(
        told.only()
            .error
            .as_ref()
            .unwrap()
            .starts_with("UNBLOCKED "),
        "{told:?}"
    );
    let error = try_cmd!(nodes[to].connect(), "LOCK.MAIL", &name).unwrap_err();
    assert!(error.starts_with("MOVED "), "{error}");
}
