//! Messages from the threads to the one that knows which servers there are.

use super::dial::Address;
use crate::model::{Order, Report};

/// An event for the model.
#[derive(Debug)]
pub(super) enum Message {
    /// By the person at the terminal.
    Order(Order),
    /// By the thread of a server, for the model.
    Report(Report),
    /// By the thread of a cluster's node: which primaries that node knows of.
    Members(String, Vec<Address>),
    /// By the thread that asks Sentinels: who the primary is, or why that is not known.
    Primary(Result<Address, String>),
}
