//! Guarded writes: the writer was inside when the server ran them.

use std::collections::HashMap;

use super::violation::{Rule, Violation};
use crate::history::{Belief, Break, History, Mode, Seen, Write};

/// Writes that the server ran although, before they were sent, it had granted the lock to an owner that excludes the writer, had
/// acknowledged the writer's own release, it had not shown the writer's hold any more, or its lock had been broken.
pub(super) fn outside(history: &History) -> Vec<Violation> {
    let mut by_key: HashMap<&str, Grants<'_>> = HashMap::new();
    for belief in &history.beliefs {
        by_key.entry(&belief.grant.key).or_default().add(belief);
    }
    let looks = history.looks();
    let done = history.writes.iter().filter(|it| it.done == Some(true));
    let wrong = |write: &Write| {
        let grants = by_key.get(&*write.key);
        let reason = broken(history, write)
            .or_else(|| grants?.released(write))
            .or_else(|| grants?.gone(history, write, looks.get(&*write.key)?))
            .or_else(|| grants?.kept_out(history, write))?;
        let text = format!("{write:?} {reason}");
        Some(Violation::new(Rule::WriteFromOutside, write.at, text))
    };
    done.filter_map(wrong).collect()
}

fn broken(history: &History, write: &Write) -> Option<String> {
    let is_over = |cut: &&Break| !cut.may_return && write.token <= cut.token && cut.to < write.sent;
    let cut = history.breaks.iter().find(is_over)?;
    Some(format!("after {cut:?}"))
}

/// The grants at one key.
#[derive(Default)]
struct Grants<'h> {
    by_hold: HashMap<(&'h str, u64), &'h Belief>,
    /// In the order of the grants: the one with the highest token up to there.
    highest: Vec<(u64, &'h Belief)>,
    highest_writer: Vec<(u64, &'h Belief)>,
}

impl<'h> Grants<'h> {
    fn add(&mut self, belief: &'h Belief) {
        let grant = &belief.grant;
        self.by_hold.insert((&grant.owner, grant.token), belief);
        push(&mut self.highest, belief);
        if grant.mode == Mode::Write {
            push(&mut self.highest_writer, belief);
        }
    }

    fn released(&self, write: &Write) -> Option<String> {
        let own = self.by_hold.get(&(&*write.owner, write.token))?;
        let is_over = own.released.is_some_and(|at| at < write.sent);
        is_over.then(|| format!("after its release {own:?}"))
    }

    /// A failover may bring back a hold whose end was lost.
    fn gone(&self, history: &History, write: &Write, looks: &[&Seen]) -> Option<String> {
        let own = self.by_hold.get(&(&*write.owner, write.token))?;
        let since = looks.partition_point(|seen| seen.sent <= own.grant.from);
        let mut before = looks[since..]
            .iter()
            .take_while(|seen| seen.sent < write.sent);
        let look = before.find(|seen| seen.at < write.sent && !seen.shows(write.token))?;
        let is_wrong = !history.had_failover(look.sent..write.at)
            && !history.may_be_back(write.token, write.at);
        is_wrong.then(|| format!("after {look:?}"))
    }

    fn kept_out(&self, history: &History, write: &Write) -> Option<String> {
        if history.may_be_back(write.token, write.at) {
            return None;
        }
        let excluding = match write.mode {
            Mode::Write => &self.highest,
            Mode::Read => &self.highest_writer,
        };
        let before = excluding.partition_point(|(from, _)| *from < write.sent);
        let (_, later) = excluding.get(before.checked_sub(1)?)?;
        (later.grant.token > write.token).then(|| format!("after {later:?}"))
    }
}

fn push<'h>(highest: &mut Vec<(u64, &'h Belief)>, belief: &'h Belief) {
    let last = highest.last().map(|(_, last)| *last);
    let best = last.filter(|last| last.grant.token > belief.grant.token);
    highest.push((belief.grant.from, best.unwrap_or(belief)));
}

/// One line of the list to which guarded writes append.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line<'a> {
    mode: Mode,
    token: u64,
    text: &'a str,
}

/// Checks the list of a lock's guarded writes. Its lines are `write:TOKEN:…` and `read:TOKEN:…`, in the order in which the server ran
/// them: before a writer's line all tokens are smaller or its own, after it larger or its own.
pub(crate) fn ledger(key: &str, lines: &[String]) -> Vec<Violation> {
    let wrong = |text: &str| Violation::new(Rule::WriteFromOutside, 0, format!("{key}: {text}"));
    let mut found = Vec::new();
    let mut highest: Option<Line<'_>> = None;
    let mut writer: Option<Line<'_>> = None;
    for text in lines {
        let Some(line) = parse(text) else {
            found.push(wrong(&format!("no line of ours: {text}")));
            continue;
        };
        let before = match line.mode {
            Mode::Write => &highest,
            Mode::Read => &writer,
        };
        if let Some(before) = before
            && before.token > line.token
        {
            found.push(wrong(&format!("{text} after {}", before.text)));
        }
        if highest.as_ref().is_none_or(|it| it.token < line.token) {
            highest = Some(line.clone());
        }
        if line.mode == Mode::Write && writer.as_ref().is_none_or(|it| it.token < line.token) {
            writer = Some(line);
        }
    }
    found
}

fn parse(text: &str) -> Option<Line<'_>> {
    let mut words = text.split(':');
    let mode = match words.next()? {
        "write" => Mode::Write,
        "read" => Mode::Read,
        _ => return None,
    };
    let token = words.next()?.parse().ok()?;
    Some(Line { mode, token, text })
}
