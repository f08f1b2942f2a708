//! A lock is a key: what the server's own commands, its databases and its memory limit do to it.
//! With waiters at that key: `waiting`.

mod callbacks;
mod first_lock;
mod lazyfree;
mod loss;
mod memory;
mod memory_safety;
mod moving;
mod renamed;
mod room;
