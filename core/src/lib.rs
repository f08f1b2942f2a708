//! The rules of locking.
