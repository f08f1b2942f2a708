//! Locks as bytes: files that a server writes and loads, damaged ones, those of other versions, DUMP, RESTORE and MIGRATE.
//! Kills at random moments are in `load`.

mod append_only;
mod backup;
mod damaged_files;
mod golden;
mod migrate;
mod payloads;
mod restart;
mod token_clock;
mod way;
