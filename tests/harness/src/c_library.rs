//! Libraries in C that are loaded into servers, compiled once per test program with `cc`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;

use crate::module::target_dir;

/// Compiles `name.c` of this folder. Returns the library's file.
pub(crate) fn compile(name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{name}.c"));
    let dir = target_dir();
    fs::create_dir_all(&dir).expect("the target folder can be created");
    let dir = dir
        .canonicalize()
        .expect("a folder just created has a path");
    let library = dir.join(format!("{name}.so"));
    let draft = dir.join(format!("{name}-{}.so", process::id()));
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
        .args([&draft, &source])
        .args(options)
        .status();
    assert!(
        status.as_ref().is_ok_and(|status| status.success()),
        "{compiler} cannot compile {}: {status:?}",
        source.display()
    );
    // Another test program may load it at this moment.
    fs::rename(&draft, &library).expect("the target folder can be written");
    library
}

/// The module of `actor.c`.
pub(crate) fn actor() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compile("actor", &["-pthread"]))
}
