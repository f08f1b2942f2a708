//! The path of the built module.

use std::env;
use std::path::{Path, PathBuf};

/// The module's file: `MORTISE_MODULE`, else `release/libmortise.so` in the target folder.
///
/// # Panics
/// If there is none.
pub fn module_path() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Tests run in their package's folder, but what a person writes into these variables is relative to the workspace.
    let path = match env::var_os("MORTISE_MODULE") {
        Some(path) => root.join(path),
        None => target_dir().join("release/libmortise.so"),
    };
    path.canonicalize().unwrap_or_else(|error| {
        panic!("no module at {}: {error}; run `make build`", path.display())
    })
}

/// The servers that `scripts/servers fetch` has brought, by name.
///
/// # Panics
/// If the folder cannot be read.
pub fn other_servers() -> Vec<(String, PathBuf)> {
    let Ok(home) = target_dir().join("servers").canonicalize() else {
        return Vec::new();
    };
    let entries = home.read_dir().expect("the folder of servers can be read");
    let dirs = entries.map(|entry| entry.expect("an entry of that folder").path());
    // A server that is still being fetched has no version yet.
    let mut found: Vec<_> = dirs
        .filter(|dir| dir.join("version").exists())
        .map(|dir| {
            let name = dir.file_name().expect("a folder has a name");
            (
                name.to_string_lossy().into_owned(),
                dir.join("redis-server"),
            )
        })
        .collect();
    found.sort();
    found
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
