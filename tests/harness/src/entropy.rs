//! A server that runs out of random numbers, by a library loaded into it (`no_entropy.c`): its module then panics where it
//! makes the first hash table on a thread.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::c_library;

/// The environment of a process that runs out once there is a certain file in `dir`.
pub(crate) fn envs(dir: &Path) -> [(String, String); 2] {
    let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    [
        ("LD_PRELOAD".to_owned(), text(library())),
        ("MORTISE_NO_ENTROPY".to_owned(), text(&file(dir))),
    ]
}

pub(crate) fn file(dir: &Path) -> PathBuf {
    dir.join("no-entropy")
}

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| c_library::compile("no_entropy", &["-ldl"]))
}
