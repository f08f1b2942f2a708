//! Many clients that send random commands, while servers are killed and links fail. These tests keep every core busy. It takes far longer
//! with `MORTISE_LONG=1`.

mod crash;
mod crash_contended;
mod disturbances;
mod player;
mod soak;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Says that it is over even if a test fails. Otherwise its scope would wait for the clients for ever.
struct EndsOnDrop<'a>(&'a AtomicBool);

impl Drop for EndsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
