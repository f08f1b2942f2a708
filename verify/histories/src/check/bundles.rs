//! Several keys at once: all of them, or none.

use std::collections::{BTreeSet, HashMap};

use super::violation::{Rule, Violation};
use crate::history::{Belief, History};

/// Grants of several keys that not all of the keys have by one token.
pub(super) fn in_part(history: &History) -> Vec<Violation> {
    let mut bundles: HashMap<(&str, u64), Vec<&Belief>> = HashMap::new();
    for belief in &history.beliefs {
        if belief.grant.together.len() > 1 {
            let name = (&*belief.grant.ask, belief.grant.token);
            bundles.entry(name).or_default().push(belief);
        }
    }
    let wrong = |beliefs: &Vec<&Belief>| {
        let first = &beliefs[0].grant;
        let wanted: BTreeSet<&str> = first.together.iter().map(String::as_str).collect();
        let taken: BTreeSet<&str> = beliefs.iter().map(|it| &*it.grant.key).collect();
        (wanted != taken).then(|| {
            let text = format!("{taken:?} of {first:?}");
            Violation::new(Rule::NotAllOrNone, first.from, text)
        })
    };
    bundles.values().filter_map(wrong).collect()
}
