//! Many clients that do whatever they like, while servers are killed, links fall silent, and nothing else matters.
//!
//! What is here keeps every core busy. It takes far longer with `MORTISE_LONG=1`.

mod crash;
mod crash_contended;
mod crowd;
mod disturbances;
mod soak;
