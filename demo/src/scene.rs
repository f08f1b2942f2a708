//! The scene at one moment. Plain data, which other files change and draw.

use crate::cast::{Event, NAMES, What};
use crate::ledger::Sale;

/// The moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scene {
    pub(crate) actors: Vec<Actor>,
    /// Who holds the lock, as the server reports it.
    pub(crate) holder: Option<Holder>,
    /// Who waits, the next one first.
    pub(crate) queue: Vec<String>,
    /// All tickets that were sold.
    pub(crate) sales: Vec<Sale>,
    /// Whose writes came too late: who, by which token.
    pub(crate) refused: Vec<(usize, u64)>,
    /// The narrator's line.
    pub(crate) said: String,
    /// How long a lease is, in milliseconds.
    pub(crate) lease_ms: u64,
}

/// One of the ten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Actor {
    pub(crate) name: &'static str,
    pub(crate) pid: u32,
    pub(crate) state: State,
    /// How many tickets it has sold.
    pub(crate) sold: u64,
}

/// The state of one of the ten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Between one ticket and the next.
    Idle,
    Waits,
    /// It holds the lock.
    Sells,
    /// It is frozen.
    Frozen,
    /// Its write came too late.
    Refused,
    Killed,
}

/// Who holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) name: String,
    pub(crate) token: u64,
    pub(crate) lease_ms: u64,
}

impl Scene {
    pub(crate) fn new(pids: impl Iterator<Item = u32>, lease_ms: u64) -> Scene {
        let actors = NAMES.into_iter().zip(pids).map(|(name, pid)| Actor {
            name,
            pid,
            state: State::Idle,
            sold: 0,
        });
        Scene {
            actors: actors.collect(),
            holder: None,
            queue: Vec::new(),
            sales: Vec::new(),
            refused: Vec::new(),
            said: String::new(),
            lease_ms,
        }
    }

    /// One of the ten has printed a line.
    pub(crate) fn take(&mut self, event: Event) {
        let actor = &mut self.actors[event.who];
        // Lines that it had sent before it was killed change nothing.
        if actor.state == State::Killed {
            return;
        }
        match event.what {
            // The refusal stays visible until its next turn.
            What::Waits if actor.state == State::Refused => {}
            What::Waits => actor.state = State::Waits,
            What::Holds(_) => actor.state = State::Sells,
            What::Sold(..) => {
                actor.sold += 1;
                actor.state = State::Idle;
            }
            What::Refused(token, _) => {
                actor.state = State::Refused;
                self.refused.push((event.who, token));
            }
            What::Ended => actor.state = State::Killed,
        }
    }
}
