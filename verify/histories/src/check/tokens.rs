//! Tokens grow in real time: the token of a grant exceeds every token known when its request was sent.

use std::collections::HashMap;

use super::violation::{Rule, Violation};
use crate::history::{Belief, History};

/// Grants whose token does not exceed all tokens known when the request was sent: of their key, or of all keys.
pub(super) fn backward(history: &History, one_clock: bool) -> Vec<Violation> {
    let mut by_key: HashMap<&str, Vec<&Belief>> = HashMap::new();
    for belief in &history.beliefs {
        let key = if one_clock { "" } else { &*belief.grant.key };
        by_key.entry(key).or_default().push(belief);
    }
    by_key.into_values().flat_map(backward_in).collect()
}

/// The same, of beliefs in the order of their grants.
fn backward_in(granted: Vec<&Belief>) -> Vec<Violation> {
    let mut asked = granted.clone();
    asked.sort_by_key(|belief| belief.asked);
    let mut known = granted.into_iter().peekable();
    let mut highest: Option<&Belief> = None;
    let mut found = Vec::new();
    for belief in asked {
        while let Some(other) = known.next_if(|other| other.grant.from < belief.asked) {
            if highest.is_none_or(|it| it.grant.token < other.grant.token) {
                highest = Some(other);
            }
        }
        if let Some(other) = highest
            && other.grant.token >= belief.grant.token
        {
            let text = format!(
                "{:?} was known before {:?} was asked for",
                other.grant, belief.grant
            );
            found.push(Violation::new(Rule::TokenWentBack, belief.grant.from, text));
        }
    }
    found
}
