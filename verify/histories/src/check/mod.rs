//! Judges a history: pure functions that check only what the set-up promises.

mod bundles;
mod inside;
mod queues;
mod seen;
#[cfg(test)]
mod tests;
mod tokens;
mod violation;
mod writes;

use crate::history::History;

pub(crate) use inside::inside;
pub(crate) use violation::{Rule, Violation};
pub(crate) use writes::ledger;

/// What a set-up promises beyond what all of them promise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promises {
    /// One server grants all locks, so tokens grow from key to key.
    pub(crate) one_token_clock: bool,
    /// Nothing that was acknowledged is lost.
    pub(crate) loses_nothing: bool,
    /// While nothing disturbs it, a lock that is free is granted at once: there is no grace.
    pub(crate) grants_at_once: bool,
}

impl Promises {
    /// Those of a set-up whose faults may lose what was acknowledged.
    pub(crate) const fn with_losses(one_token_clock: bool) -> Promises {
        Promises {
            one_token_clock,
            loses_nothing: false,
            grants_at_once: false,
        }
    }
}

/// All violations in the history.
pub(crate) fn all(history: &History, promises: Promises) -> Vec<Violation> {
    let mut found = inside(history);
    found.extend(writes::outside(history));
    found.extend(tokens::backward(history, promises.one_token_clock));
    found.extend(queues::overtaken(history));
    found.extend(queues::unanswered(history));
    found.extend(seen::together(history));
    found.extend(seen::came_back(history));
    found.extend(seen::held_though_denied(history));
    found.extend(seen::vanished(history, promises.loses_nothing));
    if promises.grants_at_once {
        found.extend(seen::left_waiting(history));
    }
    found.extend(bundles::in_part(history));
    found
}
