//! A server's part of a lock.

use std::sync::Arc;

use crate::lock::{Guard, ServerHold};
use crate::value::Error;

/// A server's part of a lock. Dropped, it is given back.
pub(crate) struct Member {
    pub(super) hold: Arc<ServerHold>,
    pub(super) guard: Guard,
}

impl Member {
    /// It is renewed while others are asked.
    pub(super) fn of(guard: Guard) -> Result<Member, Error> {
        let hold = guard.on_one_server()?;
        hold.want_renewal(true);
        Ok(Member { hold, guard })
    }
}
