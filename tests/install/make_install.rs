//! `make install` and `make uninstall`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use mortise_harness::module_path;

use crate::own_server::{OwnServer, Prefix, root};

/// Installs this file.
fn install(prefix: &Path, file: &Path) {
    let script = root().join("packaging/scripts/install");
    let installed = Command::new(script).arg(file).arg(prefix).output().unwrap();
    assert!(installed.status.success());
}

#[test]
fn the_installation_prints_the_line_that_loads_the_module_and_what_a_crash_costs() {
    let prefix = Prefix::new();
    let (done, said) = prefix.make(&["install"]);
    let line = format!("\n    loadmodule {}\n", prefix.module().display());
    assert!(done && said.contains(&line), "{said}");
    assert!(said.contains("a crash loses the locks"), "{said}");
    assert!(said.contains("nothing outside /usr/lib"), "{said}");
    let mode = fs::metadata(prefix.module()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
}

#[test]
fn a_staged_installation_names_the_place_where_it_will_be() {
    let prefix = Prefix::new();
    let stage = prefix.path().join("stage");
    let destination = format!("DESTDIR={}", stage.display());
    let (done, said) = prefix.make(&["install", &destination]);
    let line = format!("\n    loadmodule {}\n", prefix.module().display());
    assert!(done && said.contains(&line), "{said}");
    let module = prefix.module();
    assert!(stage.join(module.strip_prefix("/").unwrap()).exists());
}

#[test]
fn the_installation_needs_a_module_that_was_built() {
    let prefix = Prefix::new();
    let (done, said) = prefix.make(&["install", "MODULE=/nowhere/libmortise.so"]);
    assert!(!done && said.contains("say make first"), "{said}");
}

/// A folder with the module and a file in place of mortise-top.
fn built(prefix: &Prefix) -> PathBuf {
    let built = prefix.path().join("built");
    fs::create_dir(&built).unwrap();
    fs::copy(module_path(), built.join("libmortise.so")).unwrap();
    fs::write(built.join("mortise-top"), "#!/bin/sh\n").unwrap();
    built
}

#[test]
fn the_live_view_is_installed_where_it_was_built() {
    let prefix = Prefix::new();
    assert!(!prefix.path().join("bin").exists());
    install(prefix.path(), &built(&prefix).join("libmortise.so"));
    let mode = fs::metadata(prefix.path().join("bin/mortise-top")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o755);
    assert!(prefix.path().join("share/man/man1/mortise-top.1").exists());
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[test]
fn uninstalling_removes_every_file_and_the_folder_of_modules() {
    let prefix = Prefix::new();
    let built = built(&prefix);
    install(prefix.path(), &built.join("libmortise.so"));
    let others = prefix.path().join("share/man/man1/other.1");
    fs::write(&others, "").unwrap();
    let (done, said) = prefix.make(&["uninstall"]);
    assert!(done, "{said}");
    fs::remove_dir_all(built).unwrap();
    assert_eq!(files(prefix.path()), [others]);
    assert!(!prefix.path().join("lib/redis").exists());
}

#[test]
fn uninstalling_leaves_a_folder_with_other_modules() {
    let prefix = Prefix::new();
    let other = prefix.module().with_file_name("other.so");
    fs::write(&other, "").unwrap();
    let (done, said) = prefix.make(&["uninstall"]);
    assert!(done, "{said}");
    assert_eq!(files(prefix.path()), [other]);
}

#[test]
fn a_running_server_keeps_its_module_while_another_is_installed_over_it() {
    let prefix = Prefix::new();
    let line = format!("loadmodule {}\n", prefix.module().display());
    let mut server = OwnServer::new(&line);
    server.start();
    // Writing into the file of a loaded library changes the running code: the server would crash.
    let rubbish = prefix.path().join("rubbish.so");
    let size = fs::metadata(module_path()).unwrap().len();
    fs::write(&rubbish, vec![0; usize::try_from(size).unwrap()]).unwrap();
    install(prefix.path(), &rubbish);
    for owner in ["a", "b", "c"] {
        let key = format!("key:{owner}");
        let token = server.cli(&["LOCK.ACQUIRE", &key, owner, "10000"]);
        assert!(token.parse::<u64>().is_ok(), "{token}");
        assert_eq!(server.cli(&["LOCK.RELEASE", &key, owner]), "0");
    }
    let error = server.cli(&["LOCK.ACQUIRE", "k", "a", "10000", "WIAT", "1"]);
    assert!(error.starts_with("ERR "), "{error}");
}
