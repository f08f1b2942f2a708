//! The memory of one more lock, reader, waiter and so on is as the guide to operating says.

use mortise_harness::{Conn, Server, cmd};

use crate::pages;

/// How many are made, for a mean.
const MANY: usize = 20_000;

/// The number before `bytes` in the line with this beginning.
fn told(begins: &str) -> f64 {
    let page = pages::read("docs/operating.md");
    let line = page.lines().find(|line| line.starts_with(begins));
    let line = line.unwrap_or_else(|| panic!("no line begins with {begins}"));
    let before = line.split(" bytes").next().unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

fn assert_near(begins: &str, measured: f64) {
    let told = told(begins);
    let ratio = measured / told;
    assert!(
        (0.7..=1.3).contains(&ratio),
        "{begins}: {measured:.0} measured, {told} told"
    );
}

fn used(server: &Server) -> f64 {
    server.info("memory")["used_memory"].parse().unwrap()
}

/// A name as the libraries make them.
fn name(n: usize) -> String {
    format!("6f1c2a44-93b1-4f0e-8a57-2d1b7c9e0f31:{n}")
}

/// How much more memory the server uses after `make` for each.
fn each_takes(server: &Server, make: impl Fn(&mut Conn, usize)) -> f64 {
    let mut conn = server.connect();
    make(&mut conn, MANY);
    let before = used(server);
    for n in 0..MANY {
        make(&mut conn, n);
    }
    (used(server) - before) / MANY as f64
}

#[test]
fn the_guide_to_sizing_agrees_with_a_servers_memory() {
    let server = Server::start();
    let reader = each_takes(&server, |conn, n| {
        cmd!(conn, "LOCK.RLOCK", "lock", name(n), 600_000);
    });
    assert_near("| reader of a lock ", reader);
    let left = each_takes(&server, |conn, n| {
        cmd!(conn, "LOCK.LEAVE", "other", name(n), "FOR", 600_000);
    });
    assert_near("| name that has left ", left);

    let server = Server::builder()
        .config("appendonly", "yes")
        // With `everysec` the server postpones a write while an fsync is under way.
        .config("appendfsync", "no")
        .config("auto-aof-rewrite-percentage", "0")
        .start();
    let size = || -> f64 {
        server.info("persistence")["aof_current_size"]
            .parse()
            .unwrap()
    };
    let mut conn = server.connect();
    let before = size();
    for n in 0..MANY / 10 {
        cmd!(conn, "LOCK.ACQUIRE", "lock", name(n), 600_000);
        cmd!(conn, "LOCK.RELEASE", "lock", name(n));
    }
    // Writes whose replies were sent are in the file.
    let pair = (size() - before) / (MANY / 10) as f64;
    assert_near("Replicas hold the same locks", pair);
}
