//! A module beside the one under test, which calls it as other modules may: from threads of its own, and from callbacks.

use crate::{Server, c_library, cmd};

impl Server {
    /// Loads `actor.c`, whose first lines say what commands it brings.
    ///
    /// # Panics
    /// If the server refuses it.
    #[track_caller]
    pub fn load_actor(&self) {
        if self.setup().ends_by_itself() {
            // It has it.
            return;
        }
        let path = c_library::actor().to_str().expect("a path in UTF-8");
        cmd!(self.connect(), "MODULE", "LOAD", path);
    }
}
