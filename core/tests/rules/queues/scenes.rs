//! The queues of the model as the contract's rule for deadlocks sees them.

use std::collections::BTreeSet;

use super::reference::{Key, Reference};
use super::server::Asked;
use crate::deadlock::graph::{Ask, Scene, Wait};

/// Every key as the rule for deadlocks applies to it, for a request at `own`. Other keys that the key space has changed, the `forgotten` ones, show no
/// holders until they are settled.
pub(super) fn scenes(model: &Reference, forgotten: &BTreeSet<usize>, own: usize) -> Vec<Scene> {
    let scene = |(key, state): (usize, &Key)| {
        let is_known = key == own || !forgotten.contains(&key);
        let holds = state.holds.iter();
        let live = holds.filter(|hold| is_known && hold.ends > model.now);
        Scene {
            holds: (live.clone())
                .map(|hold| (hold.owner, hold.write > 0))
                .collect(),
            reads: live.map(|hold| hold.read).collect(),
            queue: state
                .queue
                .iter()
                .map(|w| as_ask(w.asked, w.upgrade))
                .collect(),
        }
    };
    model.keys.iter().enumerate().map(scene).collect()
}

fn as_ask(asked: Asked, upgrade: bool) -> Ask {
    Ask {
        owner: asked.owner,
        write: asked.write,
        upgrade,
        permits: asked.holds.unwrap_or(1),
        limit: asked.limit,
    }
}

pub(super) fn wait(key: usize, asked: Asked, upgrade: bool, is_queued: bool) -> Wait {
    Wait {
        key,
        ask: as_ask(asked, upgrade),
        is_queued,
    }
}
