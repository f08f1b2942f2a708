//! What the exporter serves: of one server and several, of servers that are down, and to which clients.

use mortise_harness::{Server, Shutdown, cmd, queue, waiter};

use crate::probe::Exporter;

#[test]
fn fields_of_info_become_metrics_in_seconds_and_totals() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "held", "a", 60_000);
    cmd!(conn, "LOCK.RENEW", "held", "a", 60_000);
    cmd!(conn, "LOCK.ACQUIRE", "held", "b", 60_000);
    let _waiting = waiter!(server, "LOCK.ACQUIRE", "held", "w", 60_000, "WAIT", 0);
    queue!(conn, "box", "LOCK.ACQUIRE", "held", "m", 60_000);
    let exporter = Exporter::of(&[server.addr()]);
    let samples = exporter.scrape();
    for (name, value) in [
        ("mortise_up", 1.0),
        ("mortise_primary", 1.0),
        ("mortise_server_info", 1.0),
        ("mortise_locks", 1.0),
        ("mortise_holders", 1.0),
        ("mortise_waiters", 2.0),
        ("mortise_waiters_by_mail", 1.0),
        ("mortise_mail_boxes", 1.0),
        ("mortise_blocked_clients", 1.0),
        ("mortise_blocked_clients_limit", 10_000.0),
        ("mortise_mail_limit", 500_000.0),
        ("mortise_grants_total", 1.0),
        ("mortise_renewals_total", 1.0),
        ("mortise_denied_total", 1.0),
        ("mortise_top_lock_waiters", 2.0),
        ("mortise_failover_safe", 0.0),
    ] {
        assert_eq!(samples.one(name), value, "{name}");
    }
    assert!(samples.one("mortise_scrape_duration_seconds") < 3.0);
    assert!(samples.one("mortise_longest_stretch_seconds") < 1.0);
    assert!((0.0..60.0).contains(&samples.one("mortise_top_lock_oldest_wait_seconds")));
    let version = server.version();
    let info = samples
        .0
        .keys()
        .find(|name| name.starts_with("mortise_server_info"));
    let version = format!("{}.{}.{}", version.major, version.minor, version.patch);
    assert!(info.unwrap().contains(&version), "{info:?}");
}

#[test]
fn times_are_a_summary_with_their_sum() {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    let mut waiting = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
    cmd!(conn, "LOCK.RELEASE", "key", "a");
    waiting.recv();
    let exporter = Exporter::of(&[server.addr()]);
    let samples = exporter.scrape();
    let server = format!("server=\"{}\"", server.addr());
    for name in ["mortise_wait_seconds", "mortise_hold_seconds"] {
        assert_eq!(samples.of(&format!("{name}_count"), &server), 1.0);
        let sum = samples.of(&format!("{name}_sum"), &server);
        assert!((0.0..30.0).contains(&sum), "{sum}");
        for quantile in ["0.5", "0.95", "0.99", "1"] {
            let labels = format!("{server},quantile=\"{quantile}\"");
            assert_eq!(samples.of(name, &labels), sum, "{quantile}");
        }
    }
}

#[test]
fn names_of_locks_are_served_only_on_request_and_never_break_the_page() {
    let server = Server::start();
    let mut conn = server.connect();
    let names: [&[u8]; 3] = [b"plain", b"quo\"te\\and\nline", b"\xff\x00"];
    for (n, name) in names.iter().enumerate() {
        cmd!(conn, "LOCK.ACQUIRE", *name, "holder", 60_000);
        for owner in 0..3 - n {
            queue!(
                conn,
                "box",
                "LOCK.ACQUIRE",
                *name,
                format!("w{owner}"),
                60_000
            );
        }
    }
    let quiet = Exporter::of(&[server.addr()]);
    let (_, page) = quiet.get("/metrics");
    assert!(
        !page.contains("plain") && !page.contains("mortise_lock_"),
        "{page}"
    );
    let telling = Exporter::with(&["--server", &server.addr(), "--names", "2"]);
    let samples = telling.scrape();
    let at = server.addr();
    let labels = |key: &str| format!("server=\"{at}\",db=\"0\",key=\"{key}\"");
    assert_eq!(samples.of("mortise_lock_waiters", &labels("plain")), 3.0);
    let odd = labels(r#"quo\\\"te\\\\and\\nline"#);
    assert_eq!(samples.of("mortise_lock_waiters", &odd), 2.0);
    let named = samples
        .names()
        .iter()
        .filter(|name| **name == "mortise_lock_waiters")
        .count();
    assert_eq!(named, 2);
}

#[test]
fn a_server_that_does_not_reply_is_down_with_a_reason_and_does_not_delay_the_others() {
    let mut killed = Server::start();
    let frozen = Server::start();
    let bare = Server::builder().without_module().start();
    let locked = Server::builder().config("requirepass", "secret").start();
    let well = Server::start();
    let servers = [&killed, &frozen, &bare, &locked, &well].map(Server::addr);
    killed.sigkill();
    frozen.stop_signal();
    let args: Vec<&str> = servers
        .iter()
        .flat_map(|server| ["--server", server])
        .collect();
    let exporter = Exporter::with(&[&args[..], &["--timeout", "1"]].concat());
    let samples = exporter.scrape();
    frozen.cont_signal();
    for (server, reason) in servers
        .iter()
        .zip(["connection", "timeout", "no_module", "denied"])
    {
        let label = format!("server=\"{server}\"");
        assert_eq!(samples.of("mortise_up", &label), 0.0, "{reason}");
        let labels = format!("{label},reason=\"{reason}\"");
        assert_eq!(samples.of("mortise_scrape_failure", &labels), 1.0);
    }
    let label = format!("server=\"{}\"", servers[4]);
    assert_eq!(samples.of("mortise_up", &label), 1.0);
    assert_eq!(samples.of("mortise_locks", &label), 0.0);
    killed.start_again();
    let samples = exporter.scrape();
    let label = format!("server=\"{}\"", servers[0]);
    assert_eq!(samples.of("mortise_up", &label), 1.0);
}

#[test]
fn totals_restart_with_the_server() {
    let mut server = Server::start();
    cmd!(server.connect(), "LOCK.ACQUIRE", "key", "a", 60_000);
    let exporter = Exporter::of(&[server.addr()]);
    assert_eq!(exporter.scrape().one("mortise_grants_total"), 1.0);
    server.restart(Shutdown::NoSave);
    assert_eq!(exporter.scrape().one("mortise_grants_total"), 0.0);
}

#[test]
fn prometheus_may_name_the_server_if_it_is_allowed() {
    let server = Server::start();
    let exporter = Exporter::with(&["--allow-target", "127.0.0.1:*"]);
    let path = format!("/scrape?target={}", server.addr());
    assert_eq!(exporter.samples(&path).one("mortise_up"), 1.0);
    let path = format!("/scrape?target=redis%3A%2F%2F{}", server.addr());
    assert_eq!(exporter.samples(&path).one("mortise_up"), 1.0);
    let (status, body) = exporter.get(&format!("/scrape?target=localhost:{}", server.port()));
    assert_eq!(status, 403, "{body}");
    let (status, body) = exporter.get("/scrape?target=redis://u:p@127.0.0.1:1");
    assert_eq!(status, 400, "{body}");
    assert_eq!(exporter.get("/scrape").0, 400);
    // There are no metrics of a server that is not allowed.
    assert_eq!(exporter.get("/metrics"), (200, String::new()));
    let strict = Exporter::of(&[server.addr()]);
    assert_eq!(strict.get(&path).0, 403);
}

#[test]
fn a_user_with_read_permission_is_enough() {
    let server = Server::start();
    let mut conn = server.connect();
    let rights = ["+info", "+lock.top", "~orders:*"];
    conn.cmd(
        &[
            &["ACL", "SETUSER", "exporter", "on", ">pass word"],
            &rights[..],
        ]
        .concat(),
    );
    for key in ["secret", "orders:1"] {
        cmd!(conn, "LOCK.ACQUIRE", key, "holder", 60_000);
        queue!(conn, "box", "LOCK.ACQUIRE", key, "w", 60_000);
    }
    let file = server.dir().join("password");
    std::fs::write(&file, "pass word\n").unwrap();
    let (addr, file) = (server.addr(), file.to_string_lossy().into_owned());
    let args = ["--server", &addr, "--username", "exporter", "--names", "9"];
    let by_file = Exporter::with(&[&args[..], &["--password-file", &file]].concat());
    let by_environment = Exporter::with_password(&args, Some("pass word"));
    for exporter in [by_file, by_environment] {
        let (_, page) = exporter.get("/metrics");
        assert!(
            page.contains("orders:1") && !page.contains("secret"),
            "{page}"
        );
        assert_eq!(exporter.scrape().one("mortise_waiters"), 2.0);
    }
    // Without LOCK.TOP it still serves the rest.
    cmd!(conn, "ACL", "SETUSER", "exporter", "-lock.top");
    let samples = Exporter::with_password(&args, Some("pass word")).scrape();
    assert_eq!(samples.one("mortise_waiters"), 2.0);
    assert!(!samples.names().contains(&"mortise_top_lock_waiters"));
    let wrong = Exporter::with_password(&args, Some("wrong")).scrape();
    assert_eq!(wrong.one("mortise_up"), 0.0);
}

#[test]
fn invalid_requests_get_an_error() {
    let exporter = Exporter::with(&["--allow-target", "*"]);
    assert_eq!(exporter.get("/health"), (200, "ok\n".to_owned()));
    assert_eq!(exporter.get("/nothing").0, 404);
    assert_eq!(exporter.ask("POST /metrics HTTP/1.1\r\n\r\n").0, 405);
    assert_eq!(exporter.ask("nonsense\r\n\r\n").0, 405);
    assert_eq!(exporter.get("/scrape?target=not an address").0, 405);
    assert_eq!(exporter.get("/scrape?target=nowhere").0, 200);
}

#[test]
fn a_wrong_command_line_is_an_error_and_gives_no_password_away() {
    for (args, told) in [
        (&["--nonsense"][..], "there is no option '--nonsense'"),
        (&["--server"], "--server needs a value"),
        (
            &["--server", "redis://me:secret@host:1"],
            "user and password",
        ),
        (&["--cluster", "a:1,b:x"], "'b:x' is not an address"),
        (&["--sentinel", "a:1"], "NAME@host:port"),
        (&["--timeout", "0"], "0.01 to 300 seconds"),
        (&["--names", "many"], "0 to 1000"),
        (&["--cacert", "/nowhere"], "/nowhere cannot be read"),
        (&["--cert", "/dev/null"], "--cert and --key go together"),
        (&["--password-file", "/nowhere"], "/nowhere cannot be read"),
    ] {
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_mortise-exporter"))
            .args(args)
            .output()
            .unwrap();
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(told) && !said.contains("secret"), "{said}");
    }
}
