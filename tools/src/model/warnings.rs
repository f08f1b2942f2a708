//! Warnings: what needs attention.

use std::time::Duration;

use super::node::Node;
use super::sample::{Facts, Role};
use super::state::State;
use crate::text;

/// The part of a limit from which on there is a warning, in percent.
const NEAR: u64 = 80;

/// As text, the gravest first. A warning of several servers appears once.
pub fn warnings(state: &State) -> Vec<String> {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, node) in &state.nodes {
        for text in of_node(state, node) {
            match said.iter_mut().find(|(known, _)| *known == text) {
                Some((_, nodes)) => nodes.push(name),
                None => said.push((text, vec![name])),
            }
        }
    }
    let lost = state.lost.iter().map(|(since, why)| {
        let ago = ago(state, *since);
        format!("servers unknown{ago}: {why}")
    });
    let by_node = said
        .into_iter()
        .map(|(text, nodes)| match state.nodes.len() {
            1 => text,
            all if all == nodes.len() => format!("every server: {text}"),
            _ => format!("{}: {text}", nodes.join(", ")),
        });
    lost.chain(by_node).collect()
}

fn of_node(state: &State, node: &Node) -> Vec<String> {
    if let Some((since, why)) = &node.silent {
        let ago = ago(state, *since);
        return vec![format!("no answer{ago}: {why}")];
    }
    let Some(sample) = &node.sample else {
        return Vec::new();
    };
    let mut found = Vec::new();
    found.extend(sample.refused.clone());
    found.extend(of_facts(&sample.facts));
    let facts = &sample.facts;
    if state.may_fail_over(node) && !facts.failover_safe {
        let missing = text::escaped(facts.failover_missing.as_bytes());
        found.push(format!(
            "a failover may let two in (failover_safe 0): {missing}"
        ));
    }
    found
}

fn of_facts(facts: &Facts) -> Vec<String> {
    let mut found = Vec::new();
    if facts.deployment.role == Role::Replica {
        found.push("a replica: nobody waits here, and nothing can be broken".to_owned());
    }
    if facts.grace_left_ms > 0 {
        let left = text::time(facts.grace_left_ms);
        found.push(format!(
            "grants nothing for {left}, at least: it is in its grace"
        ));
    }
    if facts.replicas_late {
        found.push("grants and renews nothing: too few replicas have recent data".to_owned());
    }
    if facts.suspect_left_ms > 0 {
        let left = text::time(facts.suspect_left_ms);
        found.push(format!(
            "for {left} there may be holds that cannot be renewed"
        ));
    }
    if facts.held_back > 0 {
        let keys = text::plural(facts.held_back, "lock");
        found.push(format!(
            "{keys} not handed on, because the server refuses writes"
        ));
    }
    if facts.evictable {
        found.push("maxmemory-policy may evict locks that are held".to_owned());
    }
    let queued = facts.by_mail + facts.letters + facts.boxes;
    found.extend(near(
        "lock.max-waiters",
        facts.blocked,
        facts.limits.waiters,
    ));
    found.extend(near("lock.max-queued", queued, facts.limits.queued));
    found
}

fn near(setting: &str, used: u64, limit: Option<u64>) -> Option<String> {
    let limit = limit.filter(|limit| *limit > 0)?;
    // Widened: a limit may be anything.
    let near = u128::from(used) * 100 >= u128::from(limit) * u128::from(NEAR);
    let (used, limit) = (text::count(used), text::count(limit));
    near.then(|| format!("{used} of {setting} {limit} are taken"))
}

fn ago(state: &State, since: Duration) -> String {
    let ms = state.now.saturating_sub(since).as_millis();
    match u64::try_from(ms) {
        // A number that jumps would not help.
        Ok(0..1000) | Err(_) => String::new(),
        Ok(ms @ 1000..60_000) => format!(" for {} s", ms / 1000),
        Ok(ms) => format!(" for {}", text::time(ms)),
    }
}
