//! What Prometheus needs to watch locks: the script that redis_exporter runs, what rules and dashboard ask for, and, with the real exporter
//! and promtool (`make -C verify alerts`), the alerts that servers raise in each bad state.

mod exporter;
mod names;
mod script;
mod series;
mod states;

use std::fs;
use std::path::{Path, PathBuf};

/// The path of a file of the repository.
fn path_of(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

/// The text of a file of the repository.
fn read(file: &str) -> String {
    fs::read_to_string(path_of(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}
