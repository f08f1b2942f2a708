//! Servers that go and come back, that hang, and that are several.

use mortise_harness::{Cluster, Server, cmd, granted, queue, waiter};

use crate::terminal::line_with;
use crate::{builder, top};

#[test]
fn an_unreachable_server_is_reported_and_shown_again_when_it_is_back() {
    let mut server = builder().start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "before", "alice", 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", "before", "bob", 1000);
    let terminal = top(&[&server.url()]);
    terminal.await_line(&["before", "alice"]);

    server.sigkill();
    terminal.await_texts(&[
        "! no answer",
        "nothing listens there",
        "0 of 1 servers answer",
    ]);
    // Its last answer stays visible.
    terminal.await_line(&["before", "alice"]);

    server.start_again();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "after", "carol", 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", "after", "dora", 1000);
    let screen = terminal.await_line(&["after", "carol"]);
    assert!(
        !screen.contains("no answer") && screen.contains("1 server"),
        "{screen}"
    );
    assert!(!screen.contains("before"), "{screen}");
}

#[test]
fn a_server_that_hangs_does_not_delay_the_others_in_the_list() {
    let (hangs, goes_on) = (builder().start(), builder().start());
    let mut a = goes_on.connect();
    let terminal = top(&[&hangs.url(), &goes_on.url(), "--timeout", "0.5"]);
    terminal.await_texts(&["2 of 2 servers answer"]);
    hangs.stop_signal();
    terminal.await_line(&["!", &hangs.addr(), "no answer", "nothing within 500 ms"]);
    terminal.await_texts(&["1 of 2 servers answer"]);
    cmd!(a, "LOCK.ACQUIRE", "k", "alice", 600_000);
    queue!(a, "box", "LOCK.ACQUIRE", "k", "bob", 1000);
    terminal.await_line(&["k ", &goes_on.addr(), "alice"]);
    hangs.cont_signal();
    terminal.await_texts(&["2 of 2 servers answer"]);
}

#[test]
fn all_primaries_of_a_cluster_are_found_from_one_node_and_a_hold_is_broken_on_its_own() {
    let cluster = Cluster::start_with_replicas(2, builder);
    // One name of each node's.
    let names = (0..).map(|number| format!("lock:{number}"));
    let mut keys = [None, None];
    for name in names {
        let home = cluster.home_of(&name);
        keys[home].get_or_insert(name);
        if keys.iter().all(Option::is_some) {
            break;
        }
    }
    let keys = keys.map(Option::unwrap);
    for (home, key) in keys.iter().enumerate() {
        let mut conn = cluster.primaries[home].connect();
        cmd!(conn, "LOCK.ACQUIRE", key, format!("owner{home}"), 600_000);
    }
    let waits = |home: usize| {
        let (server, key) = (&cluster.primaries[home], &keys[home]);
        waiter!(server, "LOCK.ACQUIRE {key} next 600000 WAIT 0")
    };
    let (_first, mut second) = (waits(0), waits(1));

    // Named is a replica: it knows who the primaries are.
    let terminal = top(&[&cluster.replicas[0].url()]);
    terminal.await_texts(&["2 of 2 servers answer", "locks 2", "waiters 2"]);
    for (home, key) in keys.iter().enumerate() {
        let owner = format!("owner{home}");
        terminal.await_line(&[key, &cluster.primaries[home].addr(), "blocked", &owner]);
    }
    terminal.press(&format!("/{}\r", keys[1]));
    terminal.await_screen("one is left", |screen| {
        line_with(screen, &[&keys[0], "write"]).is_none()
    });
    terminal.press("b");
    terminal.await_texts(&[
        "Break this hold?",
        &cluster.primaries[1].addr(),
        "owner  owner1",
    ]);
    terminal.press("y");
    granted(&mut second);
    terminal.await_texts(&["Broken: owner1"]);
    // A lock is found by its name alone, on whichever node.
    terminal.press("\x1b");
    terminal.await_screen("the filter is off", |screen| !screen.contains("only "));
    for (home, key) in keys.iter().enumerate() {
        let at = format!("db 0 on {}", cluster.primaries[home].addr());
        terminal.press(&format!("o{key}\r"));
        terminal.await_line(&[key, &at, "write, 1 holder"]);
        terminal.press("\x1b");
        terminal.await_texts(&["o by name"]);
    }
    // With replicas it matters what a failover would do.
    terminal
        .await_line(&["! every server: a failover may let two in (failover_safe 0): lock.grace 0"]);
}

#[test]
fn a_replica_that_takes_over_in_a_cluster_replaces_its_primary() {
    let cluster = Cluster::start_with_replicas(1, builder);
    let (old, next) = (&cluster.primaries[0], &cluster.replicas[0]);
    let terminal = top(&[&old.url()]);
    terminal.await_texts(&[&old.addr(), "1 server"]);
    cmd!(next.connect(), "CLUSTER", "FAILOVER");
    let screen = terminal.await_texts(&[&next.addr(), "1 server"]);
    assert!(!screen.contains(&old.addr()), "{screen}");
    let mut conn = next.connect();
    cmd!(conn, "LOCK.ACQUIRE", "after", "alice", 600_000);
    queue!(conn, "box", "LOCK.ACQUIRE", "after", "bob", 1000);
    terminal.await_line(&["after", "alice"]);
}

#[test]
fn a_lock_opened_by_name_is_shown_from_the_server_that_has_it() {
    let servers = [builder().start(), builder().start()];
    cmd!(servers[1].connect(), "LOCK.ACQUIRE", "k", "alice", 600_000);
    let terminal = top(&[&servers[0].url(), &servers[1].url()]);
    terminal.await_texts(&["2 of 2 servers answer"]);
    terminal.press("ok\r");
    let at = |server: &Server| format!("db 0 on {}", server.addr());
    terminal.await_line(&["k ", &at(&servers[1]), "1 holder"]);
    cmd!(servers[1].connect(), "DEL", "k");
    cmd!(servers[0].connect(), "LOCK.ACQUIRE", "k", "bob", 600_000);
    terminal.await_line(&["k ", &at(&servers[0]), "1 holder"]);
}

#[test]
fn the_primary_that_sentinels_name_is_watched_and_later_its_successor() {
    let first = builder().start();
    let second = builder().start();
    let sentinel = Server::builder()
        .sentinel()
        .watching("mine", first.port(), 1)
        .start();
    for (server, key) in [(&first, "on:first"), (&second, "on:second")] {
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", key, "alice", 600_000);
        queue!(conn, "box", "LOCK.ACQUIRE", key, "bob", 1000);
    }
    let terminal = top(&["--sentinel", "mine", &sentinel.url()]);
    terminal.await_line(&["on:first", "alice"]);

    // As after a failover: the name means another server.
    let mut conn = sentinel.connect();
    cmd!(conn, "SENTINEL", "REMOVE", "mine");
    terminal.await_line(&["! servers unknown", "knows no primary \"mine\""]);
    let port = second.port();
    cmd!(conn, "SENTINEL MONITOR mine 127.0.0.1 {port} 1");
    let screen = terminal.await_line(&["on:second", "alice"]);
    assert!(!screen.contains("on:first"), "{screen}");
    terminal.await_screen("nothing is unknown any more", |screen| {
        !screen.contains("not known")
    });
}

#[test]
fn warnings_are_shown() {
    let server = builder()
        .module_arg("grace", "600000")
        .module_arg("max-waiters", "10")
        .config("maxmemory-policy", "allkeys-lru")
        .start();
    let terminal = top(&[&server.url()]);
    terminal.await_line(&["! grants nothing for", "it is in its grace"]);
    let mut waiting = Vec::new();
    for number in 0..8 {
        let owner = format!("w{number}");
        waiting.push(waiter!(server, "LOCK.ACQUIRE", "k", owner, 1000, "WAIT", 0));
    }
    terminal.await_line(&["! 8 of lock.max-waiters 10 are taken"]);
    terminal.await_line(&["k ", "8", "blocked", "none", "nobody"]);
}

#[test]
fn a_policy_that_may_evict_locks_is_a_warning() {
    let server = builder()
        .config("maxmemory-policy", "allkeys-random")
        .config("maxmemory", "1gb")
        .start();
    let terminal = top(&[&server.url()]);
    terminal.await_line(&["! maxmemory-policy may evict locks that are held"]);
}

#[test]
fn a_server_without_the_module_is_reported() {
    let server = Server::builder().without_module().start();
    let terminal = top(&[&server.url()]);
    terminal.await_line(&["! no answer", "it has not loaded the module"]);
}
