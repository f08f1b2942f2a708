//! Another module, which calls ours as other modules may: from its own threads, and from callbacks. It also sends replicas what only ours
//! sends them otherwise.

use std::time::Duration;

use mortise_core::Instant;
use mortise_core::codec::{BootId, Effect, Stamp, encode_effect};

use crate::clock::{boot_id, boot_millis};
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

    /// Replicates an effect that seems to have been on its way for so long. [`Self::load_actor`] comes first.
    ///
    /// # Panics
    /// If the server refuses.
    #[track_caller]
    pub fn replicate_late(&self, key: &str, effect: &Effect<'_>, late: Duration) {
        let late = u64::try_from(late.as_millis()).expect("a short time");
        let stamp = Stamp {
            boot_id: BootId(boot_id()),
            machine: None,
            boot: Instant::from_millis(boot_millis() - late),
            wall_ms: 0,
        };
        let mut bytes = Vec::new();
        encode_effect(effect, 0, &stamp, &mut bytes);
        cmd!(self.connect(), "ACTOR.REPLICATE", key, bytes);
    }
}
