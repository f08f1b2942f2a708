//! The words of the crate: clock, lease, token, mode, names, errors. Nothing here sends, waits or decides.

pub(crate) mod clock;
pub(crate) mod connection_error;
pub(crate) mod error;
pub(crate) mod lease;
pub(crate) mod loss;
pub(crate) mod mode;
pub(crate) mod name;
pub(crate) mod random;
pub(crate) mod sync;
pub(crate) mod token;

pub(crate) use clock::BootInstant;
pub(crate) use connection_error::ConnectionError;
pub(crate) use error::{ChangeFailed, Error, NodeFailure, NodeReason, is_passing};
pub(crate) use lease::Lease;
pub(crate) use loss::Loss;
pub(crate) use mode::Mode;
pub(crate) use name::{LONGEST_CLIENT, LONGEST_TASK, Names};
pub(crate) use sync::lock;
pub(crate) use token::Token;
