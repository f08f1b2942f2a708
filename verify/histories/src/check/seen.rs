//! Judges what the server itself showed of its locks.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::violation::{Rule, Violation};
use crate::history::{History, Mode, Mutual, Seen};

/// How long a lock may be shown free while the same owner waits first for it, in nanoseconds without disturbances.
const AT_ONCE: u64 = 400_000_000;
/// How long a disturbance may have consequences.
const SETTLES: u64 = 200_000_000;

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

/// Holds that were shown after their release had been acknowledged. A failover may lose a release that its primary acknowledged.
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
            let lost = |at: u64| {
                let mut failovers = history.failovers.iter();
                failovers.any(|it| at <= it.end && it.start <= seen.at)
            };
            if at.is_some_and(|at| *at < seen.sent && !lost(*at)) {
                let text = format!("{} of {} at {}", hold.token, hold.owner, seen.key);
                found.push(Violation::new(Rule::CameBack, seen.at, text));
            }
        }
    }
    found
}

/// Holds that were shown of requests that had been denied before, also at one of several keys. A grant that was swapped away before its
/// client could confirm it counts as denied, and may come back. In a failover the letter of a grant may be lost and the hold stay: the
/// client repeats its request, which the new primary's grace denies.
pub(super) fn held_though_denied(history: &History) -> Vec<Violation> {
    let mut denied: HashMap<&str, u64> = HashMap::new();
    for (ask, at) in &history.denied {
        if !history.had_failover(ask.at..*at) {
            denied.insert(&ask.owner, *at);
        }
    }
    let mut found = Vec::new();
    for seen in &history.seen {
        for hold in &seen.holds {
            let is_denied = denied.get(&*hold.owner).is_some_and(|at| *at < seen.sent);
            if is_denied && !history.may_be_back(hold.token, seen.at) {
                let text = format!("{} at {}", hold.owner, seen.key);
                found.push(Violation::new(Rule::HeldThoughDenied, seen.at, text));
            }
        }
    }
    found
}

/// Free locks that the server did not grant to the first waiter for [`AT_ONCE`], not counting its faults.
pub(super) fn left_waiting(history: &History) -> Vec<Violation> {
    let several = in_several_queues(history);
    let mut waiting: HashMap<&str, (&str, u64)> = HashMap::new();
    let mut found = Vec::new();
    for seen in &history.seen {
        let first = seen.queue.first().map(|request| &*request.owner);
        let first = first.filter(|it| seen.holds.is_empty() && !several.contains(it));
        let Some(first) = first else {
            waiting.remove(&*seen.key);
            continue;
        };
        match waiting.get(&*seen.key) {
            Some((known, since)) if *known == first => {
                if quiet(*since..seen.sent, &history.faults) <= AT_ONCE {
                    continue;
                }
                let text = format!("{first} at {}", seen.key);
                found.push(Violation::new(Rule::LeftWaiting, seen.at, text));
            }
            _ => {}
        }
        waiting.insert(&seen.key, (first, seen.at));
    }
    found
}

/// The owners of requests for several keys. They may wait for another one than is free.
fn in_several_queues(history: &History) -> HashSet<&str> {
    let mut keys: HashMap<&str, &str> = HashMap::new();
    let mut several = HashSet::new();
    for seen in &history.seen {
        for request in &seen.queue {
            if *keys.entry(&*request.owner).or_insert(&seen.key) != seen.key {
                several.insert(&*request.owner);
            }
        }
    }
    several
}

/// How much of this time no disturbance, or its consequences, fell into.
fn quiet(time: Range<u64>, faults: &[Range<u64>]) -> u64 {
    let mut faults: Vec<Range<u64>> = faults
        .iter()
        .map(|it| it.start.max(time.start)..(it.end + SETTLES).min(time.end))
        .filter(|it| !it.is_empty())
        .collect();
    faults.sort_by_key(|it| it.start);
    let (mut quiet, mut from) = (0, time.start);
    for fault in faults {
        quiet += fault.start.saturating_sub(from);
        from = from.max(fault.end);
    }
    quiet + time.end.saturating_sub(from)
}

/// Holds that were not shown though their holder believed in them the whole time; also at any of several keys that it took at once.
/// Unless the set-up loses nothing, only those count that no fault may have lost.
pub(super) fn vanished(history: &History, loses_nothing: bool) -> Vec<Violation> {
    let looks = history.looks();
    let mut found = Vec::new();
    for belief in &history.beliefs {
        let grant = &belief.grant;
        let looks = looks.get(&*grant.key).map_or(&[][..], Vec::as_slice);
        let first = looks.partition_point(|seen| seen.sent < grant.from);
        let during = looks[first..]
            .iter()
            .take_while(|seen| seen.at < grant.until);
        for seen in during {
            let since = belief.asked.saturating_sub(SETTLES);
            if !seen.shows(grant.token) && (loses_nothing || !history.was_disturbed(since..seen.at))
            {
                let text = format!("{grant:?} in {seen:?}");
                found.push(Violation::new(Rule::Vanished, seen.at, text));
            }
        }
    }
    found
}
