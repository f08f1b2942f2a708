//! Answers of servers as metrics in Prometheus's text format (version 0.0.4).
//!
//! Units are Prometheus's: seconds, whatever the server counts in. Names of counters end in `_total`. Every sample names its server,
//! `host:port`; names of locks appear only in the two metrics that `--names` adds.

use std::fmt::Write;
use std::slice;

use crate::fields::{COUNTERS, GAUGES, QUANTILES, TIMES, Unit};
use crate::server::{Answer, Failure, TopLock};

/// A server's answer.
pub(crate) type ServerAnswer = (String, Result<Answer, Failure>);

/// The sources that were asked for servers, and whether they answered.
pub(crate) type Sources = Vec<(String, bool)>;

/// The page of some servers' answers. `names`: how many locks of each by name.
pub(crate) fn page(answers: &[ServerAnswer], sources: &Sources, names: usize) -> String {
    let mut page = Page(String::new());
    page.about_sources(sources);
    page.about_servers(answers);
    for (fields, kind) in [(&GAUGES[..], "gauge"), (&COUNTERS[..], "counter")] {
        for (field, name, unit, help) in fields {
            let samples = answers.iter().filter_map(|(server, answer)| {
                let value = number(answer.as_ref().ok()?, field)?;
                Some((labels(&[("server", server)]), unit.convert(value)))
            });
            page.metric(name, kind, help, samples);
        }
    }
    for (what, name, help) in TIMES {
        page.times(what, name, help, answers);
    }
    page.top(answers, names);
    page.0
}

struct Page(String);

impl Page {
    /// A metric with its samples: labels and values. Nothing if there are none.
    fn metric(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Iterator<Item = (String, f64)>,
    ) {
        let mut samples = samples.peekable();
        if samples.peek().is_some() {
            self.head(name, kind, help);
        }
        for (labels, value) in samples {
            self.sample(name, &labels, value);
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a String does not fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    fn about_sources(&mut self, sources: &Sources) {
        self.metric(
            "mortise_discovery_up",
            "gauge",
            "1 if a node of the cluster, or a Sentinel, has named the servers; 0 if the page shows those known before.",
            sources.iter().map(|(source, up)| {
                let labels = labels(&[("source", source)]);
                (labels, f64::from(u8::from(*up)))
            }),
        );
    }

    fn about_servers(&mut self, answers: &[ServerAnswer]) {
        let of = |server: &String| labels(&[("server", server)]);
        self.metric(
            "mortise_up",
            "gauge",
            "1 if the server has reported its locks, 0 if not.",
            answers
                .iter()
                .map(|(server, answer)| (of(server), f64::from(u8::from(answer.is_ok())))),
        );
        self.metric(
            "mortise_scrape_failure",
            "gauge",
            "1 for the reason why a server has not reported its locks.",
            answers.iter().filter_map(|(server, answer)| {
                let reason = answer.as_ref().err()?.reason;
                Some((labels(&[("server", server), ("reason", reason)]), 1.0))
            }),
        );
        self.metric(
            "mortise_scrape_duration_seconds",
            "gauge",
            "How long the server took to report.",
            answers.iter().filter_map(|(server, answer)| {
                Some((of(server), answer.as_ref().ok()?.took.as_secs_f64()))
            }),
        );
        self.metric(
            "mortise_server_info",
            "gauge",
            "Always 1: the server's kind and version.",
            answers.iter().filter_map(|(server, answer)| {
                let info = &answer.as_ref().ok()?.info;
                let (kind, version) = match info.get("valkey_version") {
                    Some(version) => ("valkey", version),
                    None => ("redis", info.get("redis_version")?),
                };
                let labels = labels(&[("server", server), ("kind", kind), ("version", version)]);
                Some((labels, 1.0))
            }),
        );
        self.metric(
            "mortise_primary",
            "gauge",
            "1 if the server is a primary, 0 if it is a replica.",
            answers.iter().filter_map(|(server, answer)| {
                let is_primary = answer.as_ref().ok()?.info.get("role")? == "master";
                Some((of(server), f64::from(u8::from(is_primary))))
            }),
        );
    }

    /// A summary: percentiles, sum and count.
    fn times(&mut self, what: &str, name: &str, help: &str, answers: &[ServerAnswer]) {
        let mut begun = false;
        for (server, answer) in answers {
            let Ok(answer) = answer else { continue };
            let field = |part: &str| number(answer, &format!("{what}_ms_{part}"));
            for (part, quantile) in QUANTILES {
                let Some(value) = field(part) else { continue };
                if !std::mem::replace(&mut begun, true) {
                    self.head(name, "summary", help);
                }
                let labels = labels(&[("server", server), ("quantile", quantile)]);
                self.sample(name, &labels, Unit::Millis.convert(value));
            }
            let labels = labels(&[("server", server)]);
            if let (Some(sum), Some(count)) = (field("sum"), field("count")) {
                self.sample(&format!("{name}_sum"), &labels, Unit::Millis.convert(sum));
                self.sample(&format!("{name}_count"), &labels, count);
            }
        }
    }

    /// The locks with the most waiters: the first one without its name, and `names` of them by name.
    fn top(&mut self, answers: &[ServerAnswer], names: usize) {
        type Part = (&'static str, &'static str, fn(&TopLock) -> f64);
        let parts: [Part; 2] = [
            ("waiters", "How many wait", |lock| lock.waiters as f64),
            (
                "oldest_wait_seconds",
                "How long the first one has waited",
                |lock| Unit::Millis.convert(lock.oldest_ms as f64),
            ),
        ];
        for (part, help, value) in parts {
            let first = answers
                .iter()
                .filter_map(top_of)
                .map(|(server, mut locks)| {
                    let value = locks.next().map_or(0.0, value);
                    (labels(&[("server", server)]), value)
                });
            let (name, help_of_first) = (
                format!("mortise_top_lock_{part}"),
                format!("{help} for the lock with the most waiters."),
            );
            self.metric(&name, "gauge", &help_of_first, first);
            let named = answers
                .iter()
                .filter_map(top_of)
                .flat_map(|(server, locks)| {
                    locks.take(names).map(move |lock| {
                        let (key, db) = (shown(&lock.key), lock.db.to_string());
                        let labels = labels(&[("server", server), ("db", &db), ("key", &key)]);
                        (labels, value(lock))
                    })
                });
            let help = format!("{help} for a lock, by its name.");
            self.metric(&format!("mortise_lock_{part}"), "gauge", &help, named);
        }
    }
}

/// A server and its locks with the most waiters, if it has reported them.
fn top_of((server, answer): &ServerAnswer) -> Option<(&str, slice::Iter<'_, TopLock>)> {
    let top = answer.as_ref().ok()?.top.as_ref()?;
    Some((server, top.iter()))
}

/// A number of `INFO lock`; an older module may lack it.
fn number(answer: &Answer, field: &str) -> Option<f64> {
    answer.info.get(&format!("lock_{field}"))?.parse().ok()
}

fn labels(pairs: &[(&str, &str)]) -> String {
    let pairs = pairs.iter().map(|(name, value)| {
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    });
    pairs.collect::<Vec<_>>().join(",")
}

/// A key's name; bytes that are no text are escaped.
fn shown(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => key.escape_ascii().to_string(),
    }
}
