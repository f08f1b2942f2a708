//! The settings `lock.*`: where they can be set, and what is refused.

use std::fs;

use mortise_harness::{
    Builder, Conn, Server, Shutdown, as_map, cmd, hold_of, int, is_nil, refused, text, try_cmd,
};

const DEFAULTS: [(&str, &str); 6] = [
    ("lock.max-lease", "86400000"),
    ("lock.max-waiters", "10000"),
    ("lock.max-queued", "500000"),
    ("lock.mail-timeout", "5000"),
    ("lock.grace", "0"),
    ("lock.promotion-grace", "-1"),
];

#[track_caller]
fn setting(conn: &mut Conn, name: &str) -> String {
    text(&as_map(&cmd!(conn, "CONFIG GET {name}"))[name])
}

/// The log of a server that does not start.
#[track_caller]
fn refused(builder: Builder) -> String {
    match builder.try_start() {
        Ok(_) => panic!("the server has started"),
        Err(error) => error.log,
    }
}

#[test]
fn each_setting_has_its_default() {
    let server = Server::start();
    for mut conn in [server.connect(), server.connect_resp3()] {
        let all = as_map(&cmd!(conn, "CONFIG GET lock.*"));
        assert_eq!(all.len(), DEFAULTS.len(), "{all:?}");
        for (name, default) in DEFAULTS {
            assert_eq!(text(&all[name]), default);
        }
    }
}

#[test]
fn a_setting_can_be_changed_at_run_time() {
    let (_server, mut conn) = Server::start_connected();
    for (name, _) in DEFAULTS {
        for value in ["5000", "100"] {
            cmd!(conn, "CONFIG", "SET", name, value);
            assert_eq!(setting(&mut conn, name), value);
        }
    }
    cmd!(conn, "CONFIG SET lock.max-lease 7 lock.grace 8");
    assert_eq!(setting(&mut conn, "lock.max-lease"), "7");
    assert_eq!(setting(&mut conn, "lock.grace"), "8");
}

#[test]
fn a_value_out_of_bounds_is_refused_and_the_setting_stays() {
    let (_server, mut conn) = Server::start_connected();
    cmd!(conn, "CONFIG SET lock.max-lease 5000");
    let values = ["-2", "x", "", "1.5", "1e3", "99999999999999999999"];
    for (name, _) in DEFAULTS {
        let before = setting(&mut conn, name);
        for value in values {
            let error = try_cmd!(conn, "CONFIG", "SET", name, value).unwrap_err();
            assert!(error.starts_with("ERR "), "{name} {value}: {error}");
            assert!(error.contains(name), "{name} {value}: {error}");
        }
        assert_eq!(setting(&mut conn, name), before);
    }
    refused!(conn, "ERR ", "CONFIG SET lock.max-lease 0");
    // Several settings are changed together or not at all.
    let both = try_cmd!(conn, "CONFIG SET lock.grace 9 lock.max-lease 0");
    assert!(both.is_err());
    assert_eq!(setting(&mut conn, "lock.grace"), "0");
    assert_eq!(setting(&mut conn, "lock.max-lease"), "5000");
    assert!(try_cmd!(conn, "CONFIG SET lock.patience 1").is_err());
    for beyond in [
        "lock.max-queued 10000001",
        "lock.mail-timeout 99",
        "lock.mail-timeout 60001",
    ] {
        assert!(try_cmd!(conn, "CONFIG SET {beyond}").is_err(), "{beyond}");
    }
}

#[test]
fn a_lower_max_lease_applies_only_to_later_requests() {
    let (_server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 60000"));
    cmd!(conn, "CONFIG SET lock.max-lease 5000");
    let lease = hold_of(&mut conn, "key", "a").unwrap().lease;
    assert!(lease > 5_000, "{lease}");
    for request in [
        "LOCK.ACQUIRE key a 5001",
        "LOCK.ACQUIRE other a 5001",
        "LOCK.RENEW key a 5001",
        "LOCK.PASS key a b 5001",
    ] {
        let error = refused!(conn, "ERR ", "{request}");
        assert!(error.contains("5000"), "{error}");
    }
    // The remaining lease exceeds the new limit, and stays.
    assert_eq!(int(&cmd!(conn, "LOCK.RENEW key a 5000")), token);
    assert_eq!(int(&cmd!(conn, "LOCK.ACQUIRE key a 5000")), token);
    let lease = hold_of(&mut conn, "key", "a").unwrap().lease;
    assert!(lease > 5_000, "{lease}");

    cmd!(conn, "CONFIG SET lock.max-lease 70000");
    assert_eq!(int(&cmd!(conn, "LOCK.RENEW key a 70000")), token);
}

#[test]
fn settings_are_read_from_the_file_and_from_arguments_with_and_without_their_prefix_in_any_case() {
    type Set = fn(Builder, &str, &str) -> Builder;
    let ways: [(Set, [&str; 3]); 4] = [
        (
            Builder::config,
            ["lock.max-lease", "lock.max-waiters", "lock.grace"],
        ),
        (Builder::module_arg, ["max-lease", "max-waiters", "grace"]),
        (
            Builder::module_arg,
            ["lock.max-lease", "lock.max-waiters", "lock.grace"],
        ),
        (
            Builder::module_arg,
            ["MAX-LEASE", "lock.Max-Waiters", "GRACE"],
        ),
    ];
    for (set, [lease, waiters, grace]) in ways {
        let builder = set(set(Server::builder(), waiters, "7"), lease, "5000");
        let (_server, mut conn) = set(builder, grace, "1").start_connected();
        assert_eq!(setting(&mut conn, "lock.max-lease"), "5000");
        assert_eq!(setting(&mut conn, "lock.max-waiters"), "7");
        assert_eq!(setting(&mut conn, "lock.grace"), "1");
        let error = refused!(conn, "ERR ", "LOCK.ACQUIRE key a 5001");
        assert!(error.contains("5000"), "{error}");
        cmd!(conn, "CONFIG SET lock.max-lease 6000");
        assert!(try_cmd!(conn, "LOCK.ACQUIRE other a 6000").is_ok());
    }
}

#[test]
fn an_unknown_or_invalid_argument_keeps_the_server_from_starting_and_the_log_names_it() {
    for (name, value) in [
        ("max-lease", "0"),
        ("max-lease", "-1"),
        ("max-lease", "x"),
        ("max-lease", ""),
        ("max-lease", "+5"),
        ("lock.max-lease", "99999999999999999999"),
        ("max-waiters", "1.5"),
        ("lock.grace", "-1"),
        ("lock.promotion-grace", "-2"),
        ("patience", "5"),
        ("lock.patience", "5"),
        ("lock.", "5"),
        ("lock.lock.grace", "5"),
    ] {
        let log = refused(Server::builder().module_arg(name, value));
        let line = log.lines().find(|line| line.contains("not loaded"));
        let line = line.unwrap_or_else(|| panic!("{name} {value}: {log}"));
        assert!(line.contains(&format!("'{name}'")), "{line}");
    }
}

#[test]
fn an_argument_without_its_value_keeps_the_server_from_starting() {
    // The harness adds a value to each name, so here the value of one is the name of another.
    let log = refused(Server::builder().module_arg("max-lease", "grace"));
    let line = log.lines().find(|line| line.contains("not loaded"));
    assert!(line.is_some_and(|line| line.contains("max-lease")), "{log}");
}

#[test]
fn an_unknown_or_invalid_line_keeps_the_server_from_starting() {
    for (name, value) in [
        ("lock.max-lease", "0"),
        ("lock.max-lease", "x"),
        ("lock.grace", "-1"),
        ("lock.promotion-grace", "-2"),
        ("lock.max-waiters", "99999999999999999999"),
    ] {
        let log = refused(Server::builder().config(name, value));
        assert!(
            log.contains(name) || log.contains("lock.*"),
            "{name} {value}: {log}"
        );
    }
    // The server's own text, as for any module.
    refused(Server::builder().config("lock.patience", "5"));
}

/// The line of `redis.conf` about `name`.
fn line_of(server: &Server, name: &str) -> Option<String> {
    let conf = fs::read_to_string(server.dir().join("redis.conf")).unwrap();
    let line = conf.lines().rfind(|line| line.starts_with(name))?;
    Some(line[name.len()..].trim().to_owned())
}

#[test]
fn config_rewrite_keeps_settings_changed_at_run_time() {
    let (mut server, mut conn) = Server::start_connected();
    cmd!(conn, "CONFIG SET lock.max-lease 5000");
    cmd!(conn, "CONFIG SET lock.max-waiters 7");
    cmd!(conn, "CONFIG REWRITE");
    assert_eq!(line_of(&server, "lock.max-lease").as_deref(), Some("5000"));
    assert_eq!(line_of(&server, "lock.max-waiters").as_deref(), Some("7"));
    assert!(line_of(&server, "loadmodule").is_some());

    for name in ["lock.max-lease", "lock.max-waiters"] {
        let value = line_of(&server, name).unwrap();
        server.set_config(name, &value);
    }
    server.restart(Shutdown::NoSave);
    let mut conn = server.connect();
    assert_eq!(setting(&mut conn, "lock.max-lease"), "5000");
    assert_eq!(setting(&mut conn, "lock.max-waiters"), "7");
}

#[test]
fn config_rewrite_keeps_a_setting_that_overrides_an_argument() {
    let (mut server, mut conn) = Server::builder()
        .module_arg("max-lease", "5000")
        .start_connected();
    // Back to the default that applies without the argument.
    cmd!(conn, "CONFIG SET lock.max-lease 86400000");
    cmd!(conn, "CONFIG REWRITE");
    let value =
        line_of(&server, "lock.max-lease").expect("a line, for the argument says otherwise");
    let module = line_of(&server, "loadmodule").unwrap();
    assert!(module.contains("max-lease"), "{module}");

    server.set_config("lock.max-lease", &value);
    server.restart(Shutdown::NoSave);
    assert_eq!(setting(&mut server.connect(), "lock.max-lease"), "86400000");
}

#[test]
fn a_grace_set_at_run_time_does_not_begin_at_once() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "CONFIG SET lock.grace 60000");
    assert!(!is_nil(&cmd!(conn, "LOCK.ACQUIRE key a 1000")));
    assert_eq!(server.gauge("grace_left_ms"), 0);
}
