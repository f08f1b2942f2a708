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

pub(crate) use acquire::{Acquisition, Next, Terms};
pub(crate) use agenda::{Agenda, Slot};
pub(crate) use command::{Command, Name, Verb};
pub(crate) use hold::Belief;
pub(crate) use info::{Fields, LockInfo, Read, ServerAnswer, TopEntry};
pub(crate) use mailbox::{Decision, Mailbox};
pub(crate) use proposal::Proposal;
pub(crate) use reply::{Answer, Failure, Reply, checked, refusal, token, unexpected};
pub(crate) use round::{Outcome, Round, Vote};
