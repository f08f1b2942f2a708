//! A server: its state, and how it runs requests.

use crate::LEASE;
use crate::client::Request;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    pub(crate) last: u8,
    pub(crate) hold: Option<Hold>,
    pub(crate) grants_from: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hold {
    pub(crate) client: usize,
    pub(crate) round: u8,
    pub(crate) token: u8,
    pub(crate) ends: u8,
}

impl Node {
    /// Runs a request. Returns the token of the hold, or `None` for null.
    pub(crate) fn serve(
        &mut self,
        client: usize,
        request: Request,
        now: u8,
        clock: u8,
    ) -> Option<u8> {
        match request {
            Request::Acquire { round } => {
                if self.hold.is_some() || now < self.grants_from {
                    return None;
                }
                self.last = (self.last + 1).max(clock);
                self.hold = Some(Hold {
                    client,
                    round,
                    token: self.last,
                    ends: now + LEASE,
                });
                Some(self.last)
            }
            Request::Fence { round, token } => {
                let hold = self.hold_of(client, round)?;
                hold.token = hold.token.max(token);
                let token = hold.token;
                self.last = self.last.max(token);
                Some(token)
            }
            Request::Renew { round, .. } => {
                let hold = self.hold_of(client, round)?;
                hold.ends = now + LEASE;
                Some(hold.token)
            }
            Request::Release { round } => {
                self.hold_of(client, round)?;
                self.hold = None;
                None
            }
        }
    }

    pub(crate) fn hold_of(&mut self, client: usize, round: u8) -> Option<&mut Hold> {
        let hold = self.hold.as_mut()?;
        (hold.client == client && hold.round == round).then_some(hold)
    }
}
