//! Clients that use locks in the server's own tools, as `docs/operating.md` says.

use std::time::Duration;

use mortise_harness::{
    Conn, Server, array, cmd, command, granted, info, int, text, try_cmd, waiter,
};

/// The fields of a client in CLIENT LIST.
fn client_line(conn: &mut Conn, id: i64) -> String {
    text(&cmd!(conn, "CLIENT LIST ID {id}"))
}

#[test]
fn a_waiter_is_a_blocked_client_that_runs_the_command_it_sent() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let reader = waiter!(server, "LOCK.RLOCK key r 60000 WAIT 0");
    let collector = waiter!(server, "LOCK.MAIL box WAIT 0");
    for (client, command) in [(&reader, "LOCK.RLOCK"), (&collector, "LOCK.MAIL")] {
        let line = client_line(&mut conn, client.client_id());
        assert!(line.contains(" flags=b "), "{line}");
        assert!(
            line.to_uppercase().contains(&format!(" CMD={command} ")),
            "{line}"
        );
    }
}

#[test]
fn the_slow_log_counts_work_and_not_waiting() {
    let (server, mut conn) =
        Server::configured("slowlog-log-slower-than 100000; latency-monitor-threshold 100");
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let mut waiting = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    assert!(waiting.recv_within(Duration::from_millis(300)).is_none());
    cmd!(conn, "LOCK.RELEASE key a");
    granted(&mut waiting);
    // As with the server's own commands that block.
    let mut popping = waiter!(server, "BLPOP list 0");
    assert!(popping.recv_within(Duration::from_millis(300)).is_none());
    cmd!(conn, "RPUSH list x");
    popping.recv();
    let slow = cmd!(conn, "SLOWLOG GET 10");
    let named: Vec<String> = array(&slow)
        .iter()
        .map(|entry| format!("{entry:?}").to_uppercase())
        .collect();
    assert!(
        !named.iter().any(|entry| entry.contains("LOCK.ACQUIRE")),
        "{named:?}"
    );
    let stats = info(&cmd!(conn, "INFO commandstats"));
    let (_, acquire) = stats
        .iter()
        .find(|(name, _)| name.to_uppercase() == "CMDSTAT_LOCK.ACQUIRE")
        .unwrap();
    let usec = acquire.split([',', '=']).nth(3).unwrap();
    assert!(usec.parse::<u64>().unwrap() < 300_000, "{acquire}");
    assert!(server.gauge("wait_ms_max") >= 300);
}

#[test]
fn info_shows_locks_in_the_documented_sections() {
    let (_server, mut conn) = Server::start_connected();
    for (section, shows) in [
        ("default", false),
        ("all", false),
        ("everything", true),
        ("modules", true),
        ("lock", true),
    ] {
        let lines = info(&cmd!(conn, "INFO {section}"));
        assert_eq!(lines.contains_key("lock_locks"), shows, "{section}");
    }
    assert!(!info(&cmd!(conn, "INFO")).contains_key("lock_locks"));
}

#[test]
fn monitor_shows_commands_and_no_hand_offs() {
    let (server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000"));
    cmd!(conn, "LOCK.ACQUIRE short a 1500");
    let mut monitor = server.connect();
    cmd!(monitor, "MONITOR");
    let mut waiting = waiter!(server, "LOCK.ACQUIRE short b 60000 WAIT 0");
    granted(&mut waiting);
    cmd!(conn, "LOCK.GUARD key a {token} SET data x");
    cmd!(conn, "ECHO", "the end");
    let mut seen = Vec::new();
    while seen
        .last()
        .is_none_or(|line: &String| !line.contains("the end"))
    {
        seen.push(text(&monitor.recv()).to_lowercase());
    }
    let count = |word: &str| {
        seen.iter()
            .filter(|line| line.contains(&format!("\"{word}\"")))
            .count()
    };
    assert_eq!(count("lock.acquire"), 1, "{seen:?}");
    assert_eq!(count("lock.settle"), 0, "{seen:?}");
    assert_eq!(count("lock.guard"), 1, "{seen:?}");
}

#[test]
fn memory_usage_counts_the_lock_and_not_its_waiters() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let alone = int(&cmd!(conn, "MEMORY USAGE key"));
    for n in 0..1_000 {
        cmd!(conn, "LOCK.RLOCK readers reader:{n} 60000");
    }
    // No less than the owners and their numbers need.
    assert!(int(&cmd!(conn, "MEMORY USAGE readers")) > alone + 40_000);
    let name = "k".repeat(10_000);
    cmd!(conn, "LOCK.ACQUIRE {name} a 60000");
    // At least once: the lease order has a copy, which not every server counts.
    assert!(int(&cmd!(conn, "MEMORY USAGE {name}")) > alone + 9_000);
    let requests = (0..20).map(|n| command!("LOCK.ACQUIRE key w{n} 60000 WAIT 0"));
    let waiting = server.waiters(requests);
    assert_eq!(int(&cmd!(conn, "MEMORY USAGE key")), alone);
    assert!(try_cmd!(conn, "MEMORY DOCTOR").is_ok() && try_cmd!(conn, "MEMORY STATS").is_ok());
    drop(waiting);
    server.await_gauge("waiters", 0);
}
