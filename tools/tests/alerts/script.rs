//! `mortise.lua` returns all that the rules record, to the user that `docs/monitoring.md` creates for the exporter.

use std::collections::BTreeMap;

use mortise_harness::{Conn, Server, array, cmd, text, try_cmd, waiter};

use crate::exporter::Exporter;
use crate::read;

/// Creates the user of the page; returns its password.
fn create_user(server: &Server) -> String {
    let page = read("docs/monitoring.md");
    let line = page
        .lines()
        .find(|line| line.starts_with("ACL SETUSER exporter "))
        .expect("the page creates the user");
    let words: Vec<&str> = line.split(' ').collect();
    server.connect().cmd(&words);
    let password = words.iter().find_map(|word| word.strip_prefix('>'));
    password.unwrap().to_owned()
}

/// What the script returns over this connection.
fn values(conn: &mut Conn) -> BTreeMap<String, u64> {
    let reply = cmd!(conn, "EVAL", read("tools/prometheus/mortise.lua"), 0);
    let words: Vec<String> = array(&reply).iter().map(text).collect();
    let (pairs, rest) = words.as_chunks::<2>();
    assert!(rest.is_empty(), "{words:?}");
    pairs
        .iter()
        .map(|[name, value]| (name.clone(), value.parse().unwrap()))
        .collect()
}

#[test]
fn the_exporters_user_collects_every_field_that_is_recorded() {
    let server = Server::start();
    let password = create_user(&server);
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "lock:a", "holder", 60_000);
    let _waiting = waiter!(server, "LOCK.ACQUIRE", "lock:a", "w", 60_000, "WAIT", 0);
    cmd!(conn, "AUTH", "exporter", password);
    let values = values(&mut conn);
    assert_eq!(values["locks"], 1);
    assert_eq!(values["waiters"], 1);
    assert_eq!(values["top_waiters"], 1);
    let rules = read("tools/prometheus/mortise.rules.yml");
    let asked = rules.split("redis_script_values{key=\"").skip(1);
    let mut count = 0;
    for field in asked.map(|rest| rest.split('"').next().unwrap()) {
        assert!(values.contains_key(field), "{field} is not in {values:?}");
        count += 1;
    }
    assert!(count > 30, "{count}");
    try_cmd!(conn, "LOCK.ACQUIRE", "lock:b", "a", 1_000).unwrap_err();
    try_cmd!(conn, "GET", "lock:a").unwrap_err();
}

#[test]
fn without_waiters_and_without_the_right_to_ask_for_them() {
    let server = Server::start();
    let password = create_user(&server);
    let mut conn = server.connect();
    assert_eq!(values(&mut conn)["top_waiters"], 0);
    cmd!(conn, "ACL", "SETUSER", "exporter", "-lock.top");
    cmd!(conn, "AUTH", "exporter", password);
    let values = values(&mut conn);
    assert_eq!(values["waiters"], 0);
    assert!(!values.contains_key("top_waiters"), "{values:?}");
}

#[test]
fn a_server_without_the_module_has_no_values() {
    let server = Server::builder().without_module().start();
    assert!(values(&mut server.connect()).is_empty());
}

#[test]
#[ignore = "needs redis_exporter: make -C verify alerts"]
fn the_exporter_of_the_page_collects_as_the_user_of_the_page() {
    let server = Server::start();
    create_user(&server);
    let exporter = Exporter::of_the_page();
    let samples = exporter.scrape(&server.addr());
    assert_eq!(samples.own("redis_up"), 1.0);
    assert_eq!(samples.of("locks"), 0.0);
    assert_eq!(samples.of("top_waiters"), 0.0);
    assert_eq!(
        samples.own("redis_exporter_last_scrape_error{err=\"\"}"),
        0.0
    );
}
