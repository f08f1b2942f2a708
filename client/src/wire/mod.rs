//! The protocol, without I/O and without a clock: commands and replies as plain data, and what a client may believe because
//! of them. Every function takes the moment as an argument. Neither tokio nor redis is known here.

pub(crate) mod belief;
pub(crate) mod command;
mod encode;
pub(crate) mod info;
pub(crate) mod mailbox;
pub(crate) mod reply;
pub(crate) mod server_info;
pub(crate) mod slots;

pub(crate) use belief::{Belief, Change, Denial, Grant};
pub(crate) use command::{Command, Name, Verb, WaitByMail};
pub(crate) use info::{Fields, FromReply, LockInfo, ServerAnswer, TopEntry};
pub(crate) use mailbox::{Decision, Mailbox};
pub(crate) use reply::{Answer, NoReply, Reply, checked, token, unexpected};
