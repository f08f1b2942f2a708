//! The protocol, without I/O and without a clock: what is sent, what a reply means, and what follows from it. Every function
//! takes the moment as an argument; neither tokio nor redis is known here. The models in `client/model` drive this code.

pub(crate) mod acquire;
pub(crate) mod agenda;
pub(crate) mod command;
pub(crate) mod hold;
pub(crate) mod info;
pub(crate) mod mailbox;
pub(crate) mod proposal;
pub(crate) mod reply;
pub(crate) mod round;
pub(crate) mod slots;
