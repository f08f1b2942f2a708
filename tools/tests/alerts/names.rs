//! The dashboard and the alert rules ask only for what is recorded, and every alert is explained.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::read;

const RULES: &str = "tools/prometheus/mortise.rules.yml";
/// What redis_exporter serves of every server.
const OF_THE_EXPORTER: [&str; 4] = [
    "redis_up",
    "redis_instance_info",
    "redis_evicted_keys_total",
    "redis_exporter_last_scrape_duration_seconds",
];

/// The names of series in a query, or in a file of them.
fn series(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("mortise_") || word.starts_with("redis_"))
        .collect()
}

/// What follows `start` on the lines of the rules.
fn after<'a>(rules: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    rules
        .lines()
        .filter_map(move |line| line.trim().strip_prefix(start))
}

/// The names that the rules record, and those that the exporter has in any case.
fn known(rules: &str) -> BTreeSet<&str> {
    after(rules, "- record: ").chain(OF_THE_EXPORTER).collect()
}

/// Every `expr` below a value.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "expr" {
                    found.push(value.as_str().unwrap().to_owned());
                }
                queries(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_only_for_what_is_recorded() {
    let rules = read(RULES);
    let known = known(&rules);
    let dashboard: Value = serde_json::from_str(&read("tools/grafana/mortise.json")).unwrap();
    let mut found = Vec::new();
    queries(&dashboard, &mut found);
    assert!(found.len() >= 20, "{found:?}");
    for query in &found {
        let asked = series(query);
        assert!(!asked.is_empty(), "{query}");
        assert!(asked.is_subset(&known), "{query}: {known:?}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let titles: BTreeSet<&str> = panels
        .iter()
        .map(|panel| panel["title"].as_str().unwrap())
        .collect();
    assert_eq!(titles.len(), panels.len(), "two panels have one title");
}

#[test]
fn the_alerts_ask_only_for_what_is_recorded_and_the_page_explains_each() {
    let rules = read(RULES);
    let (_, alerts) = rules.split_once("- alert: ").unwrap();
    let mut known = known(&rules);
    // In a description.
    known.insert("redis_exporter");
    known.insert("redis_exporter_last_scrape_error");
    let asked = series(alerts);
    assert!(asked.is_subset(&known), "{asked:?}: {known:?}");
    let page = read("docs/monitoring.md");
    let alerts: Vec<&str> = after(&rules, "- alert: ").collect();
    assert!(alerts.len() >= 12, "{alerts:?}");
    for alert in alerts {
        let row = format!("\n| `{alert}` |");
        assert!(page.contains(&row), "{alert} is not in docs/monitoring.md");
    }
}
