//! The line that loads the module, and what a server does without it.

use crate::own_server::{OwnServer, Prefix};

/// The line by which a server loads the module that is installed there.
fn line(prefix: &Prefix) -> String {
    format!("loadmodule {}\n", prefix.module().display())
}

#[test]
fn a_server_starts_again_after_it_has_rewritten_its_configuration() {
    let prefix = Prefix::new();
    let mut server = OwnServer::new(&line(&prefix));
    server.start();
    let set = server.cli(&["CONFIG", "SET", "lock.max-lease", "4321"]);
    assert_eq!(set, "OK");
    assert_eq!(server.cli(&["CONFIG", "REWRITE"]), "OK");
    server.restart();
    let read = server.cli(&["CONFIG", "GET", "lock.max-lease"]);
    assert!(read.ends_with("4321"), "{read}");
}

#[test]
fn the_line_in_an_included_file_stops_the_start_after_a_rewrite() {
    let prefix = Prefix::new();
    let mut server = OwnServer::new("");
    let included = server.file("mortise.conf");
    std::fs::write(&included, line(&prefix)).unwrap();
    server.append(&format!("include {}\n", included.display()));
    server.start();
    assert_eq!(server.cli(&["CONFIG", "REWRITE"]), "OK");
    server.stop();
    // If this worked, the page's warning would be needless.
    assert!(!server.try_start(), "it starts");
}

#[test]
fn a_server_that_lost_its_module_starts_with_its_locks_once_it_is_back() {
    let prefix = Prefix::new();
    let mut server = OwnServer::new(&line(&prefix));
    server.start();
    let token = server.cli(&["LOCK.ACQUIRE", "held", "a", "600000"]);
    server.stop();
    assert!(prefix.make(&["uninstall"]).0);
    assert!(!server.try_start(), "it starts without its module");
    assert!(prefix.make(&["install"]).0);
    server.start();
    let renewed = server.cli(&["LOCK.RENEW", "held", "a", "600000"]);
    assert_eq!(renewed, token);
}
