//! A lock is a key: what the server's own commands, its databases and its memory limit do to it.
//! Where others wait for that key: `waiting`.

mod callbacks;
mod first_lock;
mod lazyfree;
mod loss;
mod memory;
mod memory_safety;
mod moving;
mod room;
mod storm;
mod strays;
