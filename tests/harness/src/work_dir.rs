//! The folder of a server.

use std::env;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A folder that is deleted with the server, or one that a test has named.
#[derive(Debug)]
pub(crate) enum WorkDir {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl WorkDir {
    pub(crate) fn temporary() -> WorkDir {
        let mut dir = tempfile::Builder::new()
            .prefix("mortise-")
            .tempdir()
            .expect("a temporary folder can be created");
        if env::var_os("MORTISE_KEEP").is_some() {
            dir.disable_cleanup(true);
            eprintln!("the server's folder is kept: {}", dir.path().display());
        }
        WorkDir::Temporary(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            WorkDir::Temporary(dir) => dir.path(),
            WorkDir::Kept(dir) => dir,
        }
    }
}
