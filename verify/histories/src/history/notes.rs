//! What clients write down of a request and of the hold that it got.

use super::clock::now;
use super::log::Log;
use super::record::{Answer, Ask, Granted, Mode, Outcome, Record, Way, Write};

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
    /// A client is about to ask under this name. A library chooses its owner.
    pub(crate) fn asks(&self, ask: &str, owner: &str, key: &str, way: Way) {
        self.write(&Record::Ask(Ask {
            ask: ask.to_owned(),
            owner: owner.to_owned(),
            key: key.to_owned(),
            way,
            at: now(),
        }));
    }

    /// The client has been granted this, at each of the keys by one token, and begins to believe.
    pub(crate) fn granted(&self, first: &Granted, more: &[String]) -> Vec<Granted> {
        let keys = [std::slice::from_ref(&first.key), more].concat();
        let together = if more.is_empty() {
            Vec::new()
        } else {
            keys.clone()
        };
        let grant = |key| Granted {
            key,
            together: together.clone(),
            ..first.clone()
        };
        let grants: Vec<Granted> = keys.into_iter().map(grant).collect();
        let records: Vec<Record> = grants.iter().cloned().map(Record::Granted).collect();
        self.write_all(&records);
        grants
    }

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
        self.write(&Record::Kept(grant.mark(until)));
    }

    /// The client stops believing now.
    pub(crate) fn left(&self, grant: &Granted) {
        self.write(&Record::Left(grant.mark(now())));
    }

    /// The server has acknowledged the release.
    pub(crate) fn released(&self, grant: &Granted) {
        self.write(&Record::Released(grant.mark(now())));
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
