//! The documentation is true, and the script that looks for circles of files finds them.

mod circles;
mod guides;
mod python;
mod security;
mod typed;
