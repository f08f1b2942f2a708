//! A module beside the one under test, which calls it as other modules may: from threads of its own, and from callbacks.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::{Server, c_library, cmd};

impl Server {
    /// Loads `actor.c`, whose first lines say what commands it brings.
    ///
    /// # Panics
    /// If the server refuses it.
    #[track_caller]
    pub fn load_actor(&self) {
        let path = library().to_str().expect("a path in UTF-8");
        cmd!(self.connect(), "MODULE", "LOAD", path);
    }
}

fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| c_library::compile("actor", &["-pthread"]))
}
