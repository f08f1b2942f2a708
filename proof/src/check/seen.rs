//! Judges what the server itself showed of its locks.

use std::collections::HashMap;

use super::violation::{Rule, Violation};
use crate::history::{History, Mode, Mutual, Seen};

/// Holds at one moment that exclude each other, or exceed the limit.
pub(super) fn together(history: &History) -> Vec<Violation> {
    let limits: HashMap<&str, u64> = history
        .beliefs
        .iter()
        .filter(|belief| belief.grant.limit > 0)
        .map(|belief| (&*belief.grant.key, belief.grant.limit))
        .collect();
    let wrong = |seen: &Seen| {
        let holds = &seen.holds;
        let excluded = holds.iter().enumerate().any(|(n, one)| {
            holds[n + 1..]
                .iter()
                .any(|two| one.owner != two.owner && one.keeps_out(two))
        });
        if excluded {
            return Some(Violation::new(
                Rule::TwoInside,
                seen.at,
                format!("{seen:?}"),
            ));
        }
        let readers = holds.iter().filter(|hold| hold.mode == Mode::Read);
        let weight: u64 = readers.map(|hold| hold.weight).sum();
        let limit = limits.get(&*seen.key).copied().unwrap_or(u64::MAX);
        (weight > limit).then(|| Violation::new(Rule::OverLimit, seen.at, format!("{seen:?}")))
    };
    history.seen.iter().filter_map(wrong).collect()
}

/// Holds that were shown after their release had been acknowledged.
pub(super) fn came_back(history: &History) -> Vec<Violation> {
    let released: HashMap<(&str, &str, u64), u64> = history
        .beliefs
        .iter()
        .filter_map(|belief| {
            let grant = &belief.grant;
            Some(((&*grant.key, &*grant.owner, grant.token), belief.released?))
        })
        .collect();
    let mut found = Vec::new();
    for seen in &history.seen {
        for hold in &seen.holds {
            let at = released.get(&(&*seen.key, &*hold.owner, hold.token));
            if at.is_some_and(|at| *at < seen.sent) {
                let text = format!("{} of {} at {}", hold.token, hold.owner, seen.key);
                found.push(Violation::new(Rule::CameBack, seen.at, text));
            }
        }
    }
    found
}

/// Holds that were not shown though their holder believed in them the whole time; also at any of several keys that it took at once.
pub(super) fn vanished(history: &History) -> Vec<Violation> {
    let mut looks: HashMap<&str, Vec<&Seen>> = HashMap::new();
    for seen in &history.seen {
        looks.entry(&seen.key).or_default().push(seen);
    }
    let mut found = Vec::new();
    for belief in &history.beliefs {
        let grant = &belief.grant;
        let looks = looks.get(&*grant.key).map_or(&[][..], Vec::as_slice);
        let first = looks.partition_point(|seen| seen.sent < grant.from);
        let during = looks[first..]
            .iter()
            .take_while(|seen| seen.at < grant.until);
        for seen in during {
            if seen.holds.iter().all(|hold| hold.token != grant.token) {
                let text = format!("{grant:?} in {seen:?}");
                found.push(Violation::new(Rule::Vanished, seen.at, text));
            }
        }
    }
    found
}
