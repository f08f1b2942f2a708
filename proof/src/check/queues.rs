//! First come, first served, except among requests that were pending together; and every request gets an answer.

use std::collections::HashMap;

use super::violation::{Rule, Violation};
use crate::history::{Belief, History, Way};

/// Grants that overtook: another request was queued before theirs was sent, and was granted later.
pub(super) fn overtaken(history: &History) -> Vec<Violation> {
    let mut by_key: HashMap<&str, Vec<&Belief>> = HashMap::new();
    for belief in &history.beliefs {
        by_key.entry(&belief.grant.key).or_default().push(belief);
    }
    by_key.into_values().flat_map(overtaken_at).collect()
}

fn overtaken_at(granted: Vec<&Belief>) -> Vec<Violation> {
    let mut queued: Vec<(u64, &Belief)> = granted
        .iter()
        .filter_map(|belief| Some((belief.queued?, *belief)))
        .collect();
    queued.sort_by_key(|(at, _)| *at);
    // A hold that was passed on was in no queue. A request for several keys may have waited at another key.
    let mut asked: Vec<&Belief> = granted
        .into_iter()
        .filter(|belief| belief.way != Way::Pass)
        .collect();
    asked.sort_by_key(|belief| belief.asked);
    let mut waiting = queued.into_iter().peekable();
    let mut last: Option<&Belief> = None;
    let mut found = Vec::new();
    for belief in asked {
        while let Some((_, other)) = waiting.next_if(|(at, _)| *at < belief.asked) {
            if last.is_none_or(|it| it.grant.token < other.grant.token) {
                last = Some(other);
            }
        }
        if let Some(other) = last
            && other.grant.token > belief.grant.token
        {
            let text = format!("{:?} by {:?}", other, belief);
            found.push(Violation::new(Rule::Overtaken, belief.grant.from, text));
        }
    }
    found
}

/// Unanswered requests of clients that ended properly.
pub(super) fn unanswered(history: &History) -> Vec<Violation> {
    let requests = history.unanswered.iter();
    requests
        .map(|ask| Violation::new(Rule::NeverServed, ask.at, format!("{ask:?}")))
        .collect()
}
