//! When each client believed that it was inside.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;

use super::record::{Answer, Ask, Break, Granted, Mark, Outcome, Record, Seen, Way, Write};

/// A grant, and the end of the belief in it.
#[derive(Debug, Clone)]
pub(crate) struct Belief {
    pub(crate) grant: Granted,
    /// When its request was sent; 0 if no record shows it.
    pub(crate) asked: u64,
    pub(crate) way: Way,
    /// From when the server had it in the queue without a break.
    pub(crate) queued: Option<u64>,
    pub(crate) released: Option<u64>,
}

/// The places of a client's beliefs, by owner, key and token.
type Held = HashMap<(String, String, u64), usize>;

/// The combined records of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) beliefs: Vec<Belief>,
    pub(crate) writes: Vec<Write>,
    pub(crate) seen: Vec<Seen>,
    pub(crate) breaks: Vec<Break>,
    /// From when to when there could be two primaries.
    pub(crate) failovers: Vec<Range<u64>>,
    /// Unanswered requests of clients that ended properly.
    pub(crate) unanswered: Vec<Ask>,
    pub(crate) answers: Vec<Answer>,
    /// What was denied, and when that was known.
    pub(crate) denied: Vec<(Ask, u64)>,
    /// From when to when servers were disturbed.
    pub(crate) faults: Vec<Range<u64>>,
}

impl History {
    /// Combines the records of all files.
    pub(crate) fn new(files: Vec<Vec<Record>>) -> History {
        let mut history = History::default();
        for records in files {
            history.take(records);
        }
        history.seen.sort_by_key(|seen| seen.sent);
        history.see_queues();
        history.cut_broken();
        history
            .beliefs
            .sort_by_key(|belief| (belief.grant.from, belief.grant.token));
        history
    }

    /// One client's records, in the order in which it wrote them.
    fn take(&mut self, records: Vec<Record>) {
        let closed = matches!(records.last(), Some(Record::Closed { .. }));
        let mut asks: HashMap<String, (Ask, Option<u64>)> = HashMap::new();
        let mut held = Held::new();
        for record in records {
            match record {
                Record::Ask(ask) => {
                    asks.insert(ask.ask.clone(), (ask, None));
                }
                Record::Queued { ask, at } => {
                    if let Some(entry) = asks.get_mut(&ask) {
                        entry.1 = Some(at);
                    }
                }
                Record::Granted(grant) => {
                    let name = (grant.owner.clone(), grant.key.clone(), grant.token);
                    held.insert(name, self.beliefs.len());
                    let known = asks.get(&grant.ask);
                    self.beliefs.push(Belief {
                        asked: known.map_or(0, |(ask, _)| ask.at),
                        way: known.map_or(Way::Library, |(ask, _)| ask.way),
                        queued: known.and_then(|(_, queued)| *queued),
                        released: None,
                        grant,
                    });
                }
                Record::Answer(answer) => {
                    let asked = asks.remove(&answer.ask);
                    if let Some((ask, _)) = asked
                        && answer.outcome == Outcome::Denied
                    {
                        self.denied.push((ask, answer.at));
                    }
                    self.answers.push(answer);
                }
                Record::Kept(mark) => {
                    if let Some(belief) = self.marked(&held, &mark) {
                        belief.grant.until = belief.grant.until.max(mark.at);
                    }
                }
                Record::Left(mark) => {
                    if let Some(belief) = self.marked(&held, &mark) {
                        belief.grant.until = belief.grant.until.min(mark.at);
                    }
                }
                Record::Released(mark) => {
                    if let Some(belief) = self.marked(&held, &mark) {
                        belief.released = Some(mark.at);
                    }
                }
                Record::Write(write) => self.writes.push(write),
                Record::Seen(seen) => self.seen.push(seen),
                Record::Break(cut) => self.breaks.push(cut),
                Record::Failover { from, to } => self.failovers.push(from..to),
                Record::Fault {
                    is_of_client: false,
                    from,
                    to,
                    ..
                } => self.faults.push(from..to),
                Record::Fault { .. } | Record::Closed { .. } => {}
            }
        }
        if closed {
            self.unanswered
                .extend(asks.into_values().map(|(ask, _)| ask));
        }
    }

    /// The belief whose moment this is.
    fn marked(&mut self, held: &Held, mark: &Mark) -> Option<&mut Belief> {
        let name = (mark.owner.clone(), mark.key.clone(), mark.token);
        held.get(&name).map(|at| &mut self.beliefs[*at])
    }

    /// Since when requests had their place, where their clients do not know it.
    fn see_queues(&mut self) {
        let mut beliefs = mem::take(&mut self.beliefs);
        let looks = self.looks();
        for belief in &mut beliefs {
            if !matches!(belief.way, Way::Blocked | Way::Library) {
                continue;
            }
            let looks = looks.get(&*belief.grant.key);
            if let Some(place) = looks.and_then(|looks| place(belief, looks)) {
                // A library may lose its place in a fault, and ask again.
                let is_lost = belief.way == Way::Library
                    && self.was_disturbed(place.shown..belief.grant.from);
                belief.queued = (!is_lost).then_some(place.since);
            }
        }
        self.beliefs = beliefs;
    }

    /// What LOCK.INFO showed of each key, in the order in which it was asked.
    pub(crate) fn looks(&self) -> HashMap<&str, Vec<&Seen>> {
        let mut by_key: HashMap<&str, Vec<&Seen>> = HashMap::new();
        for seen in &self.seen {
            by_key.entry(&seen.key).or_default().push(seen);
        }
        by_key
    }

    /// Whether a disturbance of servers fell into this time.
    pub(crate) fn was_disturbed(&self, time: Range<u64>) -> bool {
        overlaps(&time, &self.faults) || self.had_failover(time)
    }

    /// Whether there could be two primaries at some moment of this time.
    pub(crate) fn had_failover(&self, time: Range<u64>) -> bool {
        overlaps(&time, &self.failovers)
    }

    /// Whether the hold with this token had been swapped away before `at`, and may have come back.
    pub(crate) fn may_be_back(&self, token: u64, at: u64) -> bool {
        let mut breaks = self.breaks.iter();
        breaks.any(|cut| cut.may_return && cut.from < at && cut.token >= token)
    }

    /// Ends beliefs in locks that were broken: they are no fault.
    fn cut_broken(&mut self) {
        for cut in &self.breaks {
            for belief in &mut self.beliefs {
                if belief.grant.token <= cut.token {
                    belief.grant.until = belief.grant.until.min(cut.from);
                }
            }
        }
    }
}

fn overlaps(time: &Range<u64>, others: &[Range<u64>]) -> bool {
    let mut others = others.iter();
    others.any(|it| it.start < time.end && time.start < it.end)
}

/// A place in a queue.
struct Place {
    /// At the latest.
    since: u64,
    /// When the last look before the grant was sent.
    shown: u64,
}

/// The place of a grant's request, by the last look that does not show the grant yet.
fn place(belief: &Belief, looks: &[&Seen]) -> Option<Place> {
    let grant = &belief.grant;
    let before = looks.partition_point(|seen| seen.sent < grant.from);
    let mut earlier = looks[..before].iter().rev();
    let look = earlier.find(|seen| !seen.shows(grant.token))?;
    let request = look.queue.iter().find(|it| it.owner == grant.owner)?;
    Some(Place {
        since: look.at.saturating_sub(request.waited),
        shown: look.sent,
    })
}
