//! `mortise-module enable`, `disable` and `status`: a server's configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::own_server::{OwnServer, Prefix};

fn lines_that_load(server: &OwnServer) -> usize {
    let text = server.conf_text();
    let lines = text.lines().filter(|line| line.starts_with("loadmodule"));
    lines.count()
}

#[track_caller]
fn enable(prefix: &Prefix, server: &OwnServer) {
    let (content, said) = prefix.tool(&["enable", &server.conf()]);
    assert!(content, "{said}");
}

#[track_caller]
fn refuse(prefix: &Prefix, words: &[&str], why: &str) {
    let (content, said) = prefix.tool(words);
    assert!(!content && said.contains(why), "{said}");
}

#[test]
fn the_snippet_is_added_once_at_the_end_and_the_file_keeps_its_permissions() {
    let (prefix, server) = (Prefix::new(), OwnServer::new("maxmemory 100mb"));
    let before = server.conf_text();
    fs::set_permissions(server.conf(), fs::Permissions::from_mode(0o640)).unwrap();
    enable(&prefix, &server);
    enable(&prefix, &server);
    assert!(server.conf_text().starts_with(&(before + "\n")));
    assert_eq!(lines_that_load(&server), 1);
    let mode = fs::metadata(server.conf()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}

#[test]
fn a_server_starts_again_after_it_has_rewritten_its_configuration() {
    let (prefix, mut server) = (Prefix::new(), OwnServer::new(""));
    enable(&prefix, &server);
    server.start();
    assert_eq!(
        server.cli(&["CONFIG", "SET", "lock.max-lease", "4321"]),
        "OK"
    );
    assert_eq!(server.cli(&["CONFIG", "REWRITE"]), "OK");
    server.restart();
    assert!(
        server
            .cli(&["CONFIG", "GET", "lock.max-lease"])
            .ends_with("4321")
    );
    assert_eq!(lines_that_load(&server), 1);
}

#[test]
fn the_module_cannot_be_enabled_in_an_included_file() {
    let (prefix, mut server) = (Prefix::new(), OwnServer::new(""));
    let snippet = prefix.path().join("share/mortise/mortise.conf");
    server.append(&format!("include {}\n", snippet.display()));
    server.start();
    assert_eq!(server.cli(&["CONFIG", "REWRITE"]), "OK");
    server.stop();
    // If this worked, the guide's warning would be needless.
    assert!(!server.try_start(), "it starts");
}

#[test]
fn enabling_again_restores_the_settings() {
    let (prefix, mut server) = (Prefix::new(), OwnServer::new(""));
    enable(&prefix, &server);
    server.append("lock.max-lease 4321\n");
    let before = server.conf_text();
    let (content, said) = prefix.tool(&["disable", &server.conf()]);
    assert!(content, "{said}");
    server.start();
    assert_eq!(server.cli(&["CONFIG", "GET", "lock.*"]), "");
    server.stop();
    enable(&prefix, &server);
    assert_eq!(server.conf_text(), before);
    server.start();
    assert!(
        server
            .cli(&["CONFIG", "GET", "lock.max-lease"])
            .ends_with("4321")
    );
}

#[test]
fn a_configuration_moves_to_another_installation_with_its_settings() {
    let (old, new, mut server) = (Prefix::new(), Prefix::new(), OwnServer::new(""));
    enable(&old, &server);
    server.append("lock.max-lease 4321\n");
    assert!(old.tool(&["disable", &server.conf()]).0);
    enable(&new, &server);
    assert_eq!(lines_that_load(&server), 1);
    assert!(old.make(&["uninstall"]).0);
    server.start();
    assert!(
        server
            .cli(&["CONFIG", "GET", "lock.max-lease"])
            .ends_with("4321")
    );
}

#[test]
fn a_module_loaded_by_hand_is_not_loaded_a_second_time() {
    let (prefix, server) = (
        Prefix::new(),
        OwnServer::new("loadmodule /opt/libmortise.so\n"),
    );
    let before = server.conf_text();
    refuse(&prefix, &["enable", &server.conf()], "from another place");
    assert_eq!(server.conf_text(), before);
}

#[test]
fn a_configuration_does_not_change_if_its_server_cannot_load_the_module() {
    let (prefix, server) = (Prefix::new(), OwnServer::new(""));
    let before = server.conf_text();
    fs::write(prefix.module(), "no module").unwrap();
    refuse(&prefix, &["enable", &server.conf()], "does not start with");
    assert_eq!(server.conf_text(), before);
}

#[test]
fn enabling_the_module_reports_which_locks_a_crash_would_lose() {
    let prefix = Prefix::new();
    for (lines, warned) in [
        ("", Some("since the last snapshot are lost")),
        (
            "appendonly yes\n",
            Some("those of the last two seconds are lost"),
        ),
        ("appendonly yes\nappendfsync always\n", None),
        // A server that restarts without its data grants nothing while an old lease may run.
        (
            "lock.max-lease 30000\nlock.grace 29999\n",
            Some("since the last snapshot are lost"),
        ),
        ("lock.max-lease 30000\nlock.grace 30000\n", None),
    ] {
        let server = OwnServer::new(lines);
        for word in ["enable", "status"] {
            let (content, said) = prefix.tool(&[word, &server.conf()]);
            assert!(content, "{said}");
            assert_eq!(
                said.contains(" are lost"),
                warned.is_some(),
                "{lines}: {said}"
            );
            assert!(said.contains(warned.unwrap_or_default()), "{lines}: {said}");
        }
    }
}

#[test]
fn cleaning_a_configuration_restores_the_original() {
    let (prefix, mut server) = (Prefix::new(), OwnServer::new("# mine\n\nmaxmemory 100mb\n"));
    let before = server.conf_text();
    enable(&prefix, &server);
    server.append("lock.max-lease 4321\n# mine, too\n");
    refuse(&prefix, &["clean", &server.conf()], "still loads");
    assert!(prefix.tool(&["disable", &server.conf()]).0);
    let (content, said) = prefix.tool(&["clean", &server.conf()]);
    assert!(content, "{said}");
    assert_eq!(server.conf_text(), before + "# mine, too\n");
    server.start();
}
