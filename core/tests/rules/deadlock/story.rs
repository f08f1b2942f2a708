//! Steps of a few owners at a few keys.

use mortise_core::Mode::{self, Write};
use mortise_core::{Decided, How, WaiterId};

use crate::queues::server::{Answer, Asked, Patience, Server, key_number};

pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
pub(crate) const C: usize = 2;
pub(crate) const D: usize = 3;

pub(crate) struct Story {
    pub(crate) server: Server,
    /// The patience of requests from now on.
    pub(crate) patience: Patience,
}

impl Default for Story {
    fn default() -> Self {
        Self {
            server: Server::default(),
            patience: Patience::Endless,
        }
    }
}

impl Story {
    fn ask(&mut self, who: usize, mode: Mode, key: usize) -> Answer {
        let asked = Asked {
            owner: who,
            write: mode == Write,
            lease: 1_000,
            holds: None,
            limit: None,
            fence: None,
            client: 0,
        };
        self.server.ask(key, asked, self.patience)
    }

    pub(crate) fn takes(&mut self, who: usize, mode: Mode, key: usize) {
        let answer = self.ask(who, mode, key);
        assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
    }

    /// The request is queued: it closes no cycle.
    pub(crate) fn waits(&mut self, who: usize, mode: Mode, key: usize) -> WaiterId {
        match self.ask(who, mode, key) {
            Answer::Waits { id, .. } => id,
            answer => panic!("{answer:?}"),
        }
    }

    /// The reply is `DEADLOCK`, with these keys.
    pub(crate) fn deadlocks(&mut self, who: usize, mode: Mode, key: usize, keys: &[usize]) {
        let before = self.server.queues.len();
        assert_eq!(self.ask(who, mode, key), Answer::Deadlock(keys.to_vec()));
        assert_eq!(self.server.queues.len(), before, "nothing is queued");
    }

    pub(crate) fn releases(&mut self, who: usize, key: usize) -> Vec<Decided> {
        let released = self.server.release(key, who, How::All);
        released.expect("it holds");
        self.server.settle(key).decided
    }

    pub(crate) fn leaves(&mut self, id: WaiterId) -> Vec<Decided> {
        let keys = self.server.queues.remove(id).expect("it waits").keys;
        let key = key_number(keys.first());
        self.server.settle(key).decided
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.server.now = self.server.now.after(ms);
    }
}
