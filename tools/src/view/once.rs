//! The state once, for scripts: columns that `awk` can split, or JSON.

use std::fmt::Write;

use crate::model::{Facts, Row, State, warnings};
use crate::text;

const COLUMNS: [&str; 12] = [
    "LOCK",
    "DB",
    "SERVER",
    "WAITING",
    "LONGEST_MS",
    "BY",
    "MODE",
    "HOLDERS",
    "OWNER",
    "TOKEN",
    "HELD_MS",
    "LEASE_MS",
];

/// A line `#` for each server, a line `!` for each warning, then a line for each lock with waiters, below the names of the columns. Nothing
/// in a column has a space in it; what is not known is `-`.
pub fn plain(state: &State) -> String {
    let mut out = String::new();
    for (name, node) in &state.nodes {
        let numbers = match node.current() {
            Some(sample) => facts(&sample.facts)
                .map(|(name, number)| format!(" {name}={number}"))
                .concat(),
            None => " silent".to_owned(),
        };
        line(&mut out, format_args!("# {name}{numbers}"));
    }
    for warning in warnings(state) {
        line(&mut out, format_args!("! {warning}"));
    }
    let rows = state.rows();
    let lines: Vec<[String; 12]> = std::iter::once(COLUMNS.map(str::to_owned))
        .chain(rows.iter().map(|row| values(row).map(|value| value.word())))
        .collect();
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|at| {
            lines
                .iter()
                .map(|line| text::width(&line[at]))
                .max()
                .unwrap_or(0)
        })
        .collect();
    for cells in lines {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| {
            let gap = " ".repeat(width - text::width(cell));
            format!("{cell}{gap}")
        });
        let padded: Vec<String> = padded.collect();
        line(&mut out, format_args!("{}", padded.join("  ").trim_end()));
    }
    out
}

/// The same as one object: `servers`, `warnings`, `locks`. Names are escaped as they are on the screen.
pub fn json(state: &State) -> String {
    let servers = state.nodes.iter().map(|(name, node)| {
        let mut fields = vec![("server", quoted(name))];
        fields.push(("answers", node.current().is_some().to_string()));
        if let Some(sample) = node.current() {
            fields.extend(facts(&sample.facts).map(|(name, number)| (name, number.to_string())));
        }
        object(&fields)
    });
    let locks = state.rows();
    let locks = locks.iter().map(|row| {
        let names = COLUMNS.map(str::to_lowercase);
        let values = values(row).map(|value| value.json());
        let fields: Vec<(&str, String)> = names.iter().map(String::as_str).zip(values).collect();
        object(&fields)
    });
    let out = object(&[
        ("servers", array(servers)),
        (
            "warnings",
            array(warnings(state).iter().map(|text| quoted(text))),
        ),
        ("locks", array(locks)),
    ]);
    out + "\n"
}

fn facts(facts: &Facts) -> [(&'static str, u64); 19] {
    let totals = &facts.totals;
    [
        ("locks", facts.locks),
        ("holders", facts.holders),
        ("waiters", facts.waiters),
        ("waiters_by_mail", facts.by_mail),
        ("blocked_clients", facts.blocked),
        ("boxes", facts.boxes),
        ("letters", facts.letters),
        ("total_grants", totals.grants),
        ("total_reentries", totals.reentries),
        ("total_handoffs", totals.handoffs),
        ("total_releases", totals.releases),
        ("total_renewals", totals.renewals),
        ("total_expiries", totals.expiries),
        ("total_timeouts", totals.timeouts),
        ("total_deadlocks", totals.deadlocks),
        ("total_denied", totals.denied),
        ("wait_ms_p99", facts.wait.p99),
        ("hold_ms_p99", facts.hold.p99),
        ("failover_safe", u64::from(facts.failover_safe)),
    ]
}

enum Value<'a> {
    Bytes(&'a [u8]),
    Text(&'a str),
    Number(u64),
    Unknown,
}

impl Value<'_> {
    fn word(self) -> String {
        match self {
            Value::Bytes(bytes) => text::escaped_word(bytes),
            Value::Text(text) => text.to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Unknown => "-".to_owned(),
        }
    }

    fn json(self) -> String {
        match self {
            Value::Bytes(bytes) => quoted(&text::escaped(bytes)),
            Value::Text(text) => quoted(text),
            Value::Number(number) => number.to_string(),
            Value::Unknown => "null".to_owned(),
        }
    }
}

/// In the order of the columns.
fn values<'a>(row: &Row<'a>) -> [Value<'a>; 12] {
    let wanted = row.wanted;
    let by = wanted.detail.as_ref().map_or("", |detail| detail.wait_by());
    let hold = wanted
        .detail
        .as_ref()
        .and_then(|detail| detail.holds.first());
    let known = |number: Option<u64>| number.map_or(Value::Unknown, Value::Number);
    [
        Value::Bytes(&wanted.key),
        Value::Number(u64::from(wanted.db)),
        Value::Text(row.node),
        Value::Number(wanted.waiters),
        Value::Number(wanted.oldest_ms),
        if by.is_empty() {
            Value::Unknown
        } else {
            Value::Text(by)
        },
        Value::Text(wanted.mode.name()),
        Value::Number(wanted.holders),
        hold.map_or(Value::Unknown, |hold| Value::Bytes(&hold.owner)),
        known(hold.map(|hold| hold.token)),
        known(hold.map(|hold| hold.held_ms)),
        known(hold.map(|hold| hold.lease_ms)),
    ]
}

fn line(out: &mut String, args: std::fmt::Arguments<'_>) {
    writeln!(out, "{args}").expect("a string takes all");
}

fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{}:{value}", quoted(name)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

fn array(values: impl Iterator<Item = String>) -> String {
    let values: Vec<String> = values.collect();
    format!("[{}]", values.join(","))
}

/// The quoted text has been escaped: it has no control characters.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
