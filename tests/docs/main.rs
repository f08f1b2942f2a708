//! The documentation is true.

mod guides;
mod python;
mod typed;
