//! The documentation is true.

mod guides;
