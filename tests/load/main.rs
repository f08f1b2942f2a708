//! Many clients that send random commands, while servers are killed and links fail. These tests keep every core busy. It takes far longer
//! with `MORTISE_LONG=1`.

mod crash;
mod crash_contended;
mod crowd;
mod disturbances;
mod soak;
