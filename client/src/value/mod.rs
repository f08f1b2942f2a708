//! The words of the crate: clock, lease, token, mode, names, errors. Nothing here sends, waits or decides.

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod lease;
pub(crate) mod mode;
pub(crate) mod name;
pub(crate) mod released;
pub(crate) mod sync;
pub(crate) mod token;
