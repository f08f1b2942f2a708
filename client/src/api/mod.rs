//! What applications see: clients, locks, guards. Nothing is decided here.

pub(crate) mod builder;
pub(crate) mod client;
pub(crate) mod lock;
pub(crate) mod quorum;
pub(crate) mod server;
pub(crate) mod settings;
