//! Everything that the screens show: the servers, the open lock, the open question.

use std::collections::BTreeMap;
use std::time::Duration;

use super::node::{Node, Rates};
use super::sample::{Broken, Detail, Hold, LockAnswer, LockId, Opened, Report, Times, Wanted};
use crate::text;

/// How long a notice stays.
const NOTICE_STAYS: Duration = Duration::from_secs(10);

/// The state of the program.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// The servers by address.
    pub nodes: BTreeMap<String, Node>,
    /// Why the list of servers is unknown.
    pub lost: Option<(Duration, String)>,
    /// The time since the start.
    pub now: Duration,
    /// Only lines that contain this are listed.
    pub filter: String,
    /// What is being typed.
    pub typing: Option<Typing>,
    /// What is looked at.
    pub screen: Screen,
    /// The screen is paused.
    pub paused: bool,
    /// The help is open.
    pub help: bool,
    /// The longest wait comes first, not the longest queue.
    pub by_age: bool,
    /// A question before an action.
    pub question: Option<Question>,
    /// What came of it.
    pub notice: Option<Notice>,
    /// The lock in the list that is chosen, and the line it was on when it was last seen.
    pub(super) chosen: (Option<LockId>, usize),
    /// The line that is chosen on the screen of one lock.
    pub(super) line: usize,
    /// An option says that Sentinels watch the servers.
    sentinels: bool,
}

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Screen {
    /// All locks with waiters.
    #[default]
    List,
    /// One of them.
    Lock(LockId),
    /// The one of this name, on whichever server it is.
    Named(Vec<u8>),
}

/// What is being typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Typing {
    /// The filter.
    Filter,
    /// The name of a lock to be opened, so far.
    Name(String),
}

/// The lock that is open.
#[derive(Debug, Clone, Copy)]
pub struct OpenLock<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// Where it is: None before that is known.
    pub id: Option<&'a LockId>,
    /// What is known of it: None before the first answer.
    pub answer: Option<&'a LockAnswer>,
}

/// A request to the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Ask for this lock, or for none.
    Watch(Option<LockId>),
    /// Search for the lock of this name on every server.
    Seek(Vec<u8>),
    /// Ask for locks that have this text in their names or their holders'.
    Filter(String),
    /// End a hold.
    Break {
        /// Of this lock.
        lock: LockId,
        /// This owner's.
        owner: Vec<u8>,
        /// Only the one with this token.
        token: u64,
        /// Now, or with its lease.
        when: When,
    },
    /// End the program.
    Quit,
}

/// When a hold is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At once, whatever its owner does.
    Now,
    /// With its lease at the latest: it is revoked.
    WithItsLease,
}

/// Whether to break a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Of which lock.
    pub lock: LockId,
    /// Which hold.
    pub hold: Hold,
    /// How many wait for it.
    pub waiters: u64,
}

/// A line about an action that was done or refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// In words.
    pub text: String,
    /// When.
    pub at: Duration,
}

/// A line of the list.
#[derive(Debug, Clone)]
pub struct Row<'a> {
    /// Where it is.
    pub node: &'a str,
    /// What is known of it.
    pub wanted: &'a Wanted,
    /// The server has fallen silent: this is its last answer.
    pub stale: bool,
}

impl Row<'_> {
    /// Which lock it is.
    pub fn id(&self) -> LockId {
        LockId {
            node: self.node.to_owned(),
            db: self.wanted.db,
            key: self.wanted.key.clone(),
        }
    }
}

/// All servers together.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// How many there are, and how many of them answer.
    pub nodes: (usize, usize),
    /// Keys that are held.
    pub locks: u64,
    /// Holds.
    pub holders: u64,
    /// Requests that wait, of these by mail, and clients blocked.
    pub waiters: [u64; 3],
    /// Boxes and letters.
    pub mail: [u64; 2],
    /// Of all that are known.
    pub rates: Option<Rates>,
    /// The worst server's.
    pub wait: Times,
    /// The worst server's.
    pub hold: Times,
    /// The largest.
    pub last_token: u64,
}

impl State {
    /// Of servers that Sentinels watch, or of others.
    pub fn new(sentinels: bool) -> State {
        State {
            sentinels,
            ..State::default()
        }
    }

    /// Servers may take each other's place, so it matters whether that is safe.
    pub(super) fn may_fail_over(&self, node: &Node) -> bool {
        let Some(sample) = &node.sample else {
            return false;
        };
        let run = sample.facts.deployment;
        self.sentinels || run.cluster || run.replicas > 0
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) {
        self.now = now;
        if let Some(notice) = &self.notice
            && notice.at + NOTICE_STAYS < now
        {
            self.notice = None;
        }
    }

    /// An event from the source.
    pub fn take(&mut self, report: Report) {
        match report {
            Report::Nodes(names) => {
                self.lost = None;
                self.nodes.retain(|name, _| names.contains(name));
                for name in names {
                    self.nodes.entry(name).or_default();
                }
            }
            // An event may come from a server that was removed.
            Report::Sample { node, at, sample } if !self.paused => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.take(at, *sample);
                }
                self.settle_choice();
            }
            Report::Sample { .. } => {}
            Report::Silent { node, at, why } => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.fall_silent(at, why);
                }
            }
            Report::Lost { at, why } => {
                let since = self.lost.take().map_or(at, |(since, _)| since);
                self.lost = Some((since, why));
            }
            Report::Broken {
                at,
                lock,
                owner,
                outcome,
            } => self.report_broken(at, &lock, &owner, outcome),
        }
    }

    fn report_broken(&mut self, at: Duration, lock: &LockId, owner: &[u8], outcome: Broken) {
        let (key, owner) = (text::escaped(&lock.key), text::escaped(owner));
        let text = match outcome {
            Broken::Ended => format!("Broken: {owner} no longer holds {key}"),
            Broken::Revoked(left_ms) => {
                let left = text::time(left_ms);
                format!("Revoked: {owner} holds {key} for {left} at most")
            }
            Broken::Nothing => {
                format!("Nothing to break: {owner} no longer held {key} by that token")
            }
            Broken::Refused(error) => format!("Not broken: {error}"),
            Broken::Unknown(error) => {
                format!("Unknown whether {owner} still holds {key}: {error}")
            }
        };
        self.notice = Some(Notice { text, at });
    }

    /// Shows a line at the foot of the screen.
    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.notice = Some(Notice {
            text: text.into(),
            at: self.now,
        });
    }

    /// The lines of the list, in order.
    pub fn rows(&self) -> Vec<Row<'_>> {
        let nodes = self.nodes.iter();
        let all = nodes.flat_map(|(name, node)| {
            let sample = node.sample.iter();
            sample.flat_map(|sample| &sample.wanted).map(|wanted| Row {
                node: name,
                wanted,
                stale: node.silent.is_some(),
            })
        });
        let shown = all.filter(|row| row.wanted.has(&self.filter, row.node));
        let mut rows: Vec<Row<'_>> = shown.collect();
        // A stable sort: equals stay in the order of the servers and of their answers.
        rows.sort_by_key(|row| {
            let (waiters, age) = (row.wanted.waiters, row.wanted.oldest_ms);
            std::cmp::Reverse(if self.by_age {
                (age, waiters)
            } else {
                (waiters, age)
            })
        });
        rows
    }

    /// Which of the rows is chosen; the one in its place, where it has gone.
    pub fn chosen_row(&self, rows: &[Row<'_>]) -> Option<usize> {
        let (id, line) = &self.chosen;
        let found = rows.iter().position(|row| Some(row.id()) == *id);
        found.or_else(|| rows.len().checked_sub(1).map(|last| last.min(*line)))
    }

    /// Remembers on which line the chosen lock is, so that its neighbour is chosen when it goes.
    pub(super) fn settle_choice(&mut self) {
        let rows = self.rows();
        if let Some(line) = self.chosen_row(&rows) {
            self.chosen = (Some(rows[line].id()), line);
        }
    }

    /// The lock that is open, if one is.
    pub fn opened(&self) -> Option<OpenLock<'_>> {
        let samples = self.nodes.iter().filter_map(|(name, node)| {
            let sample = node.sample.as_ref()?;
            Some((name, sample.opened.as_ref()?))
        });
        match &self.screen {
            Screen::List => None,
            Screen::Lock(id) => {
                let mut found = samples.filter(|(node, (lock, _))| **node == id.node && lock == id);
                Some(OpenLock {
                    key: &id.key,
                    id: Some(id),
                    answer: found.next().map(|(_, (_, answer))| answer),
                })
            }
            Screen::Named(key) => {
                let found = samples.map(|(_, opened)| opened);
                let found = found
                    .filter(|(id, _)| id.key == *key)
                    .min_by_key(foreignness);
                Some(OpenLock {
                    key,
                    id: found.map(|(id, _)| id),
                    answer: found.map(|(_, answer)| answer),
                })
            }
        }
    }

    /// Who holds and waits in the open lock, and where it is, if that is known.
    pub fn opened_detail(&self) -> Option<(&LockId, &Detail)> {
        let open = self.opened()?;
        match open.answer {
            Some(Ok(Some(detail))) => Some((open.id?, detail)),
            _ => None,
        }
    }

    /// The line chosen on the screen of one lock: holders first, then the queue.
    pub fn chosen_line(&self) -> usize {
        let lines = self
            .opened_detail()
            .map_or(0, |(_, detail)| detail.holds.len() + detail.queue.len());
        self.line.min(lines.saturating_sub(1))
    }

    /// All servers that answer, together.
    pub fn summary(&self) -> Summary {
        let mut sum = Summary {
            nodes: (self.nodes.len(), 0),
            ..Summary::default()
        };
        for node in self.nodes.values() {
            let Some(sample) = node.current() else {
                continue;
            };
            let facts = &sample.facts;
            sum.nodes.1 += 1;
            sum.locks += facts.locks;
            sum.holders += facts.holders;
            sum.waiters[0] += facts.waiters;
            sum.waiters[1] += facts.by_mail;
            sum.waiters[2] += facts.blocked;
            sum.mail[0] += facts.boxes;
            sum.mail[1] += facts.letters;
            sum.wait = worst(sum.wait, facts.wait);
            sum.hold = worst(sum.hold, facts.hold);
            sum.last_token = sum.last_token.max(facts.last_token);
            if let Some(rates) = &node.rates {
                sum.rates.get_or_insert_default().add(rates);
            }
        }
        sum
    }
}

/// If several servers answer, the one that has the lock comes first, and one that redirects comes last.
fn foreignness((_, answer): &&Opened) -> u8 {
    match answer {
        Ok(Some(_)) => 0,
        Ok(None) => 1,
        Err(error) if !error.starts_with("MOVED ") => 2,
        Err(_) => 3,
    }
}

fn worst(a: Times, b: Times) -> Times {
    Times {
        p50: a.p50.max(b.p50),
        p95: a.p95.max(b.p95),
        p99: a.p99.max(b.p99),
        max: a.max.max(b.max),
    }
}
