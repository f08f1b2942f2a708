//! Another module, which calls ours as other modules may: from its own threads, and from callbacks. It also sends replicas what only ours
//! sends them otherwise.

use crate::{Server, c_library, cmd};

impl Server {
    /// Loads `actor.c`, whose first lines list its commands.
    ///
    /// # Panics
    /// If the server refuses it.
    #[track_caller]
    pub fn load_actor(&self) {
        if self.setup().ends_by_itself() {
            // Whether that module is loaded.
            return;
        }
        let path = c_library::actor().to_str().expect("a path in UTF-8");
        cmd!(self.connect(), "MODULE", "LOAD", path);
    }
}
