//! Finds owners that were inside together.

use std::collections::HashMap;

use super::violation::{Rule, Violation};
use crate::history::{Belief, History, Mode, Mutual};

/// Overlapping beliefs that exclude each other: of a writer and any other owner, or of more permits than the limit allows.
pub(crate) fn inside(history: &History) -> Vec<Violation> {
    let mut active: HashMap<&str, Vec<&Belief>> = HashMap::new();
    let mut found = Vec::new();
    let held = history
        .beliefs
        .iter()
        .filter(|belief| belief.grant.from < belief.grant.until);
    for belief in held {
        let inside = active.entry(&belief.grant.key).or_default();
        inside.retain(|other| other.grant.until > belief.grant.from);
        found.extend(inside.iter().filter_map(|other| excluded(belief, other)));
        inside.push(belief);
        found.extend(over_limit(belief, inside));
    }
    found
}

fn excluded(belief: &Belief, other: &Belief) -> Option<Violation> {
    let (one, two) = (&other.grant, &belief.grant);
    let is_wrong = one.owner != two.owner && one.keeps_out(two);
    is_wrong.then(|| {
        let together = one.until.min(two.until) - two.from;
        let text = format!(
            "for {} ms: {one:?} and {two:?}",
            together as f64 / 1_000_000.0
        );
        Violation::new(Rule::TwoInside, two.from, text)
    })
}

fn over_limit(belief: &Belief, inside: &[&Belief]) -> Option<Violation> {
    let grant = &belief.grant;
    let readers = inside.iter().filter(|other| other.grant.mode == Mode::Read);
    let weight: u64 = readers.map(|other| other.grant.weight).sum();
    let is_wrong = grant.mode == Mode::Read && grant.limit > 0 && weight > grant.limit;
    is_wrong.then(|| {
        let text = format!("{weight} permits with {grant:?}");
        Violation::new(Rule::OverLimit, grant.from, text)
    })
}
