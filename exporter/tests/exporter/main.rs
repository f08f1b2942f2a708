//! The exporter beside real servers: what it serves, also of a server that is down, and what its metrics say when locks
//! are in trouble. The dashboard, the alert rules and the guide use only metrics that it serves.

mod deploy;
mod discovery;
mod guide;
mod probe;
mod serving;
mod states;
mod tls;
#[path = "../../../tools/tests/top/tls_server.rs"]
mod tls_server;
