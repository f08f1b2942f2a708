//! First come, first served, except among requests that were pending together; and every request gets an answer.

use std::collections::HashMap;
use std::ops::Range;

use super::violation::{Rule, Violation};
use crate::history::{Belief, History, Way};

/// Grants that overtook: another request was queued before theirs was sent, and was granted later. Two requests of the same failover may
/// have come to two primaries, where neither overtakes the other.
pub(super) fn overtaken(history: &History) -> Vec<Violation> {
    let mut by_key: HashMap<&str, Vec<&Belief>> = HashMap::new();
    for belief in &history.beliefs {
        by_key.entry(&belief.grant.key).or_default().push(belief);
    }
    let at_key = |granted| overtaken_at(granted, &history.failovers);
    by_key.into_values().flat_map(at_key).collect()
}

fn overtaken_at(granted: Vec<&Belief>, failovers: &[Range<u64>]) -> Vec<Violation> {
    let mut queued: Vec<(u64, &Belief)> = granted
        .iter()
        .filter_map(|belief| Some((belief.queued?, *belief)))
        .collect();
    queued.sort_by_key(|(at, _)| *at);
    // At each place the one of those up to there that was granted last.
    let mut last = queued.clone();
    for n in 1..last.len() {
        if last[n].1.grant.token < last[n - 1].1.grant.token {
            last[n].1 = last[n - 1].1;
        }
    }
    // A hold that was passed on was in no queue. A request for several keys may have waited at another key.
    let asked = granted.into_iter().filter(|it| it.way != Way::Pass);
    let overtook = |belief: &Belief| {
        let failover = failovers.iter().find(|it| it.contains(&belief.asked));
        let before = failover.map_or(belief.asked, |failover| failover.start);
        let count = queued.partition_point(|(at, _)| *at < before);
        let (_, other) = last[..count].last()?;
        (other.grant.token > belief.grant.token).then(|| {
            let text = format!("{other:?} by {belief:?}");
            Violation::new(Rule::Overtaken, belief.grant.from, text)
        })
    };
    asked.filter_map(overtook).collect()
}

/// Unanswered requests of clients that ended properly.
pub(super) fn unanswered(history: &History) -> Vec<Violation> {
    let requests = history.unanswered.iter();
    requests
        .map(|ask| Violation::new(Rule::NeverServed, ask.at, format!("{ask:?}")))
        .collect()
}
