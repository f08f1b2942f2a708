//! `make install` and `make uninstall`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use mortise_harness::module_path;

use crate::own_server::{OwnServer, Prefix, program, root};

#[test]
fn the_installed_module_is_loaded_once_and_grants_a_lock() {
    let prefix = Prefix::new();
    let check = format!("MORTISE_SERVER={}", program());
    let (content, said) = prefix.make(&["install", &check]);
    assert!(content && said.contains("grants a lock"), "{said}");
    let mode = fs::metadata(prefix.module()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn the_installation_reports_a_file_that_no_server_loads() {
    let prefix = Prefix::new();
    let nothing = prefix.path().join("nothing.so");
    fs::write(&nothing, "no module").unwrap();
    let module = format!("MODULE={}", nothing.display());
    let check = format!("MORTISE_SERVER={}", program());
    let (content, said) = prefix.make(&["install", &check, &module]);
    assert!(!content && said.contains("does not start with"), "{said}");
}

#[test]
fn a_staged_installation_names_the_place_where_it_will_be() {
    let prefix = Prefix::new();
    let stage = prefix.path().join("stage");
    let destination = format!("DESTDIR={}", stage.display());
    let (content, said) = prefix.make(&["install", "CHECK=no", &destination]);
    assert!(content, "{said}");
    let staged = stage.join(prefix.path().strip_prefix("/").unwrap());
    let snippet = fs::read_to_string(staged.join("share/mortise/mortise.conf")).unwrap();
    let line = format!("\nloadmodule {}\n", prefix.module().display());
    assert!(snippet.contains(&line), "{snippet}");
}

/// Creates a file in place of the live view.
fn install_tools(prefix: &Prefix) {
    let built = prefix.path().join("built");
    fs::create_dir(&built).unwrap();
    fs::write(built.join("mortise-top"), "#!/bin/sh\n").unwrap();
    let (content, said) = prefix.make(&["install-tools", &format!("TOOLS={}", built.display())]);
    assert!(content, "{said}");
}

#[test]
fn the_live_view_is_installed_with_its_manual_page() {
    let prefix = Prefix::new();
    install_tools(&prefix);
    let mode = fs::metadata(prefix.path().join("bin/mortise-top")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o755);
    assert!(prefix.path().join("share/man/man1/mortise-top.1").exists());
}

#[test]
fn the_installation_names_programs_that_are_not_built() {
    let prefix = Prefix::new();
    let (content, said) = prefix.make(&["install-tools", "TOOLS=/nowhere"]);
    assert!(!content && said.contains("say make tools first"), "{said}");
}

#[test]
fn uninstalling_leaves_no_file_and_no_empty_folder() {
    let prefix = Prefix::new();
    install_tools(&prefix);
    let (content, said) = prefix.make(&["install", "CHECK=no"]);
    assert!(content, "{said}");
    let own = prefix.path().join("share/man/man7");
    fs::create_dir(&own).unwrap();
    let (content, said) = prefix.make(&["uninstall"]);
    assert!(content, "{said}");
    let mut left = Vec::new();
    let mut folders = vec![prefix.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            left.push(path);
        }
    }
    // Except the test's own files, and their folders.
    left.retain(|path| !own.starts_with(path) && !path.starts_with(prefix.path().join("built")));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_running_server_keeps_its_module_while_another_is_installed_over_it() {
    let prefix = Prefix::new();
    let mut server = OwnServer::new("");
    assert!(prefix.tool(&["enable", &server.conf()]).0);
    server.start();
    // Writing into the file of a loaded library changes the running code: the server would crash.
    let rubbish = prefix.path().join("rubbish.so");
    fs::write(
        &rubbish,
        vec![0; fs::metadata(module_path()).unwrap().len() as usize],
    )
    .unwrap();
    let script = root().join("scripts/install");
    let installed = Command::new(script)
        .arg(&rubbish)
        .arg(prefix.path())
        .status()
        .unwrap();
    assert!(installed.success());
    for owner in ["a", "b", "c"] {
        let key = format!("key:{owner}");
        let token = server.cli(&["LOCK.ACQUIRE", &key, owner, "10000"]);
        assert!(token.parse::<u64>().is_ok(), "{token}");
        assert_eq!(server.cli(&["LOCK.RELEASE", &key, owner]), "0");
    }
    assert_eq!(
        server
            .cli(&["LOCK.ACQUIRE", "k", "a", "10000", "WIAT", "1"])
            .split(' ')
            .next(),
        Some("ERR")
    );
}
