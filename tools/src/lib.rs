//! The parts of `mortise-top`: a live view of the locks of Redis and Valkey servers.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`model`] | what servers told and what follows from it, keys pressed included: pure, samples in, state out |
//! | [`view`] | the state as a screen, as columns, or as JSON: pure, nothing is asked for here |
//! | [`source`] | the connections: threads that ask each server, and tell the model |
//! | [`live`] | the terminal: keys in, screens out, restored whatever happens |
//! | [`options`] | the command line |
//!
//! Nothing that a server sent goes to the terminal but through [`text::escaped`].

#![forbid(unsafe_code)]

pub mod live;
pub mod model;
pub mod options;
pub mod source;
pub mod text;
mod tls;
pub mod view;
