//! Series of a server in some state, written down as a test for promtool.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use mortise_harness::Server;

use crate::exporter::{Exporter, Samples};
use crate::path_of;

/// For how many minutes a scrape stands in a series.
const MINUTES: usize = 5;
/// For how many minutes the last one stands.
const LAST_MINUTES: usize = 60;

/// Scrapes of one server, in their order.
pub(crate) struct Series {
    exporter: Exporter,
    address: String,
    scrapes: Vec<Samples>,
}

impl Series {
    /// No scrapes yet of this server.
    pub(crate) fn of(server: &Server) -> Series {
        Series {
            exporter: Exporter::start(),
            address: server.addr(),
            scrapes: Vec::new(),
        }
    }

    /// Scrapes once more.
    pub(crate) fn scrape(&mut self) -> &Samples {
        self.scrapes.push(self.exporter.scrape(&self.address));
        self.scrapes.last().unwrap()
    }

    /// Leaves a value of the script out of all scrapes.
    pub(crate) fn forget(&mut self, name: &str) {
        let part = format!("\"{name}\"");
        for scrape in &mut self.scrapes {
            scrape.0.retain(|series, _| !series.contains(&part));
        }
    }

    /// Writes a test: in the state `name` exactly these alerts are raised at `minute`.
    pub(crate) fn raises(&self, name: &str, minute: usize, alerts: &[&str]) {
        let folder = env::var("MORTISE_SERIES").expect("make -C verify alerts sets MORTISE_SERIES");
        let rules = path_of("tools/prometheus/mortise.rules.yml");
        let mut test = format!(
            "rule_files:\n  - {}\nevaluation_interval: 1m\ntests:\n  - name: {name}\n    interval: 1m\n    input_series:\n",
            rules.canonicalize().unwrap().display()
        );
        for series in self.names() {
            let values = self.values(series);
            let series = labelled(series);
            let _ = writeln!(test, "      - series: '{series}'\n        values: {values}");
        }
        let none = if alerts.is_empty() { " []" } else { "" };
        let _ = write!(
            test,
            "    promql_expr_test:\n      - expr: count by (alertname) (ALERTS{{alertstate=\"firing\"}})\n        \
             eval_time: {minute}m\n        exp_samples:{none}\n"
        );
        for alert in alerts {
            let _ = write!(
                test,
                "          - labels: '{{alertname=\"{alert}\"}}'\n            value: 1\n"
            );
        }
        fs::create_dir_all(&folder).unwrap();
        fs::write(PathBuf::from(folder).join(format!("{name}.yml")), test).unwrap();
    }

    /// The names of all series with a sample in any scrape.
    fn names(&self) -> BTreeSet<&str> {
        let names = self.scrapes.iter().flat_map(|scrape| scrape.0.keys());
        // promtool's own numbers have no such exponents, and nothing asks for these.
        names
            .map(String::as_str)
            .filter(|name| name.starts_with("redis_") && !name.contains("last_token"))
            .collect()
    }

    /// The values of a series, a scrape after the other.
    fn values(&self, series: &str) -> String {
        let values = self.scrapes.iter().enumerate().map(|(at, scrape)| {
            let is_last = at + 1 == self.scrapes.len();
            let more = if is_last { LAST_MINUTES } else { MINUTES - 1 };
            match scrape.0.get(series) {
                Some(value) => format!("{value}x{more}"),
                None => format!("_x{}", more + 1),
            }
        });
        values.collect::<Vec<_>>().join(" ")
    }
}

/// The series with the labels that Prometheus gives it.
fn labelled(series: &str) -> String {
    const SCRAPE: &str = "job=\"mortise\",instance=\"server:6379\"";
    match series.split_once('{') {
        Some((name, labels)) => format!("{name}{{{SCRAPE},{labels}"),
        None => format!("{series}{{{SCRAPE}}}"),
    }
}
