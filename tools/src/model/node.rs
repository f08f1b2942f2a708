//! One server over time: its last sample, how fast its counters grow, and for how long it has been silent.

use std::time::Duration;

use super::sample::{Sample, Totals};

/// What is known about a server.
#[derive(Debug, Clone, Default)]
pub struct Node {
    /// Its last answer, if there was one.
    pub sample: Option<Sample>,
    /// Per second, between its last two answers.
    pub rates: Option<Rates>,
    /// Since when it has not answered, and why.
    pub silent: Option<(Duration, String)>,
    /// When that answer came.
    answered: Duration,
}

/// A server's counters, per second.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rates {
    /// Locks granted.
    pub grants: f64,
    /// Grants to who held already.
    pub reentries: f64,
    /// Grants out of a queue.
    pub handoffs: f64,
    /// Releases.
    pub releases: f64,
    /// Renewals.
    pub renewals: f64,
    /// Leases that ran out.
    pub expiries: f64,
    /// Waits that ran out.
    pub timeouts: f64,
    /// Deadlocks found.
    pub deadlocks: f64,
    /// Requests answered null at once.
    pub denied: f64,
}

impl Node {
    /// Records its answer.
    pub fn take(&mut self, at: Duration, sample: Sample) {
        if let Some(before) = &self.sample
            && self.silent.is_none()
        {
            let seconds = at.saturating_sub(self.answered).as_secs_f64();
            // Two answers at the same moment show no rate.
            if seconds > 0.05 {
                self.rates = Rates::between(&before.facts.totals, &sample.facts.totals, seconds);
            }
        }
        self.sample = Some(sample);
        self.silent = None;
        self.answered = at;
    }

    /// Records that it has not answered.
    pub fn fall_silent(&mut self, at: Duration, why: String) {
        self.rates = None;
        let since = self.silent.take().map_or(at, |(since, _)| since);
        self.silent = Some((since, why));
    }

    /// Its current answer: none while it is silent.
    pub fn current(&self) -> Option<&Sample> {
        self.sample.as_ref().filter(|_| self.silent.is_none())
    }

    /// It has answered or failed.
    pub fn is_known(&self) -> bool {
        self.sample.is_some() || self.silent.is_some()
    }
}

impl Rates {
    /// None where the server has begun anew in between.
    fn between(before: &Totals, after: &Totals, seconds: f64) -> Option<Rates> {
        let grown = |field: fn(&Totals) -> u64| {
            let grown = field(after).checked_sub(field(before))?;
            Some(grown as f64 / seconds)
        };
        Some(Rates {
            grants: grown(|totals| totals.grants)?,
            reentries: grown(|totals| totals.reentries)?,
            handoffs: grown(|totals| totals.handoffs)?,
            releases: grown(|totals| totals.releases)?,
            renewals: grown(|totals| totals.renewals)?,
            expiries: grown(|totals| totals.expiries)?,
            timeouts: grown(|totals| totals.timeouts)?,
            deadlocks: grown(|totals| totals.deadlocks)?,
            denied: grown(|totals| totals.denied)?,
        })
    }

    /// Adds another server's.
    pub fn add(&mut self, other: &Rates) {
        self.grants += other.grants;
        self.reentries += other.reentries;
        self.handoffs += other.handoffs;
        self.releases += other.releases;
        self.renewals += other.renewals;
        self.expiries += other.expiries;
        self.timeouts += other.timeouts;
        self.deadlocks += other.deadlocks;
        self.denied += other.denied;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(grants: u64) -> Sample {
        let mut sample = Sample::default();
        sample.facts.totals.grants = grants;
        sample
    }

    #[test]
    fn a_rate_is_the_increase_in_the_time_between_two_replies() {
        let mut node = Node::default();
        node.take(Duration::from_secs(1), after(10));
        assert_eq!(node.rates, None);
        node.take(Duration::from_secs(3), after(50));
        assert_eq!(node.rates.unwrap().grants, 20.0);
    }

    #[test]
    fn a_restarted_server_has_no_rate_until_its_second_reply() {
        let mut node = Node::default();
        node.take(Duration::from_secs(1), after(10));
        node.take(Duration::from_secs(2), after(3));
        assert_eq!(node.rates, None);
        node.take(Duration::from_secs(3), after(4));
        assert_eq!(node.rates.unwrap().grants, 1.0);
    }

    #[test]
    fn silence_counts_from_the_first_missing_reply() {
        let mut node = Node::default();
        node.take(Duration::from_secs(1), after(10));
        node.fall_silent(Duration::from_secs(2), "gone".into());
        node.fall_silent(Duration::from_secs(3), "still gone".into());
        assert_eq!(
            node.silent,
            Some((Duration::from_secs(2), "still gone".into()))
        );
        assert!(node.current().is_none() && node.sample.is_some());
        node.take(Duration::from_secs(9), after(11));
        assert!(node.silent.is_none() && node.rates.is_none());
    }
}
