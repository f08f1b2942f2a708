//! What clients write down of a request and of the hold that it got.

use super::clock::now;
use super::log::Log;
use super::record::{Answer, Granted, Mode, Outcome, Record, Write};

impl Granted {
    /// What its holder writes into the list of the lock.
    pub(crate) fn line(&self) -> String {
        let mode = match self.mode {
            Mode::Read => "read",
            Mode::Write => "write",
        };
        format!("{mode}:{}:{}", self.token, self.owner)
    }
}

impl Log {
    /// The request is over.
    pub(crate) fn answer(&self, ask: &str, outcome: Outcome, text: &str) {
        self.write(&Record::Answer(Answer {
            ask: ask.to_owned(),
            outcome,
            text: text.to_owned(),
            at: now(),
        }));
    }

    /// The client believes until then.
    pub(crate) fn kept(&self, grant: &Granted, until: u64) {
        self.write(&Record::Kept {
            owner: grant.owner.clone(),
            key: grant.key.clone(),
            token: grant.token,
            until,
        });
    }

    /// The client stops believing now.
    pub(crate) fn left(&self, grant: &Granted) {
        self.write(&Record::Left {
            owner: grant.owner.clone(),
            key: grant.key.clone(),
            token: grant.token,
            at: now(),
        });
    }

    /// The server has acknowledged the release.
    pub(crate) fn released(&self, grant: &Granted) {
        self.write(&Record::Released {
            owner: grant.owner.clone(),
            key: grant.key.clone(),
            token: grant.token,
            at: now(),
        });
    }

    /// A guarded write was sent then; whether the server ran it.
    pub(crate) fn wrote(&self, grant: &Granted, sent: u64, done: Option<bool>) {
        self.write(&Record::Write(Write {
            owner: grant.owner.clone(),
            key: grant.key.clone(),
            mode: grant.mode,
            token: grant.token,
            sent,
            at: now(),
            done,
        }));
    }
}
