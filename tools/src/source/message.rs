//! Messages from the threads to the one that keeps the list of servers.

use super::dial::Address;
use crate::model::{Order, Report};

/// An event for the model.
#[derive(Debug)]
pub(super) enum Message {
    /// From the user.
    Order(Order),
    /// From the thread of a server, for the model.
    Report(Report),
    /// From the thread of a cluster's node: the primaries that the node knows.
    Members(String, Vec<Address>),
    /// From the thread that asks Sentinels: the primary, or why it is unknown.
    Primary(Result<Address, String>),
}
