//! The dashboard and the alert rules ask for metrics that are served.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use mortise_harness::{Server, cmd, queue};
use serde_json::Value;

use crate::probe::Exporter;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(path)).unwrap()
}

/// The names of metrics in a query, or in a file of them.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("mortise_"));
    names.map(str::to_owned).collect()
}

/// All that an exporter serves of a server that has known locks, and of one that is down.
fn served() -> BTreeSet<String> {
    let server = Server::start();
    let mut conn = server.connect();
    cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
    queue!(conn, "box", "LOCK.ACQUIRE", "key", "b", 60_000);
    let addr = server.addr();
    let down = ["--server", "127.0.0.1:1", "--cluster", "127.0.0.1:1"];
    let args = [&["--server", &addr, "--names", "1"], &down[..]].concat();
    let exporter = Exporter::with(&args);
    let samples = exporter.scrape();
    samples.names().into_iter().map(str::to_owned).collect()
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
fn the_dashboard_uses_only_metrics_that_are_served() {
    let dashboard: Value = serde_json::from_str(&read("tools/grafana/mortise.json")).unwrap();
    let mut found = Vec::new();
    queries(&dashboard, &mut found);
    assert!(found.len() >= 20, "{found:?}");
    let served = served();
    for query in found {
        let asked = metrics(&query);
        assert!(!asked.is_empty(), "{query}");
        assert!(asked.is_subset(&served), "{query}: {served:?}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let titles: BTreeSet<&str> = panels
        .iter()
        .map(|panel| panel["title"].as_str().unwrap())
        .collect();
    assert_eq!(titles.len(), panels.len(), "two panels have one title");
}

#[test]
fn the_alert_rules_use_only_served_metrics_and_each_is_explained() {
    let rules = read("tools/prometheus/mortise.rules.yml");
    let served = served();
    let asked = metrics(&rules);
    assert!(asked.is_subset(&served), "{asked:?}: {served:?}");
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(alerts.len() >= 12, "{alerts:?}");
    let page = read("docs/operating.md");
    for alert in alerts {
        assert!(
            page.contains(&format!("`{alert}`")),
            "{alert} is not in docs/operating.md"
        );
    }
}

#[test]
fn the_manual_page_has_every_option() {
    let page = read("packaging/mortise-exporter.1");
    let help = Command::new(env!("CARGO_BIN_EXE_mortise-exporter"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let words = help.split_whitespace();
    let options: Vec<&str> = words.filter(|word| word.starts_with("--")).collect();
    assert!(options.len() >= 14, "{options:?}");
    for option in options {
        let option = option.trim_end_matches([',', ';']).replace("--", "\\-\\-");
        assert!(page.contains(&option), "{option} is not in the manual page");
    }
}
