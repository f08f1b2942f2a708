//! What the servers' clocks have shown, and the token that a quorum client proposes because of that. Never its own wall clock, which
//! may be an hour off and would push every server's tokens ahead with it. Never the time of a token either: a client may have
//! proposed that, and clients that learned from one another's proposals would run ahead of all clocks.

use std::mem;
use std::time::Duration;

use crate::quorum::votes::{believable, majority};
use crate::value::{BootInstant, Token};

/// A clock is read again when its last reading is that old.
const OLD: Duration = Duration::from_secs(30);
/// A reading is used for so long: this machine's clock and the servers' do not run alike.
const LONGEST: Duration = Duration::from_secs(60);
/// What servers' clocks may differ by from their readings without costing a round trip.
const MARGIN: Duration = Duration::from_millis(1);

/// What a server's clock has shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// Microseconds since 1970.
    pub(crate) micros: u64,
    /// When the server was asked.
    pub(crate) asked: BootInstant,
    /// When it had answered.
    pub(crate) answered: BootInstant,
}

impl Reading {
    fn is_fresh(&self, now: BootInstant, limit: Duration) -> bool {
        now.since(self.asked) <= limit
    }

    /// What the clock shows now, at most. A proposal that is sent now arrives when the clock shows about that: it travels as long as
    /// the question did.
    fn at_most(&self, now: BootInstant) -> u64 {
        self.micros + now.since(self.asked).as_micros() as u64
    }

    fn at_least(&self, now: BootInstant) -> u64 {
        self.micros + now.since(self.answered).as_micros() as u64
    }
}

/// The clocks of a quorum's servers, and the tokens that they would grant now.
#[derive(Debug, Clone)]
pub(crate) struct Clocks {
    /// By server.
    readings: Vec<Option<Reading>>,
    /// The largest token that has come to be.
    last: u64,
    /// Servers have exceeded a proposal: all clocks are read anew.
    was_exceeded: bool,
}

impl Clocks {
    pub(crate) fn new(servers: usize) -> Clocks {
        Clocks {
            readings: vec![None; servers],
            last: 0,
            was_exceeded: false,
        }
    }

    /// A token that all servers can probably grant, or `None` if the clocks of too few are known.
    pub(crate) fn propose(&self, now: BootInstant) -> Option<Token> {
        let limit = self.believable(now)?;
        let clocks = self.fresh(now).map(|(_, it)| it.at_most(now));
        let latest = clocks.filter(|it| *it <= limit).max()?;
        let estimate = latest + MARGIN.as_micros() as u64;
        Some(Token::new(estimate.max(self.last + 1)))
    }

    /// The servers whose clocks are certainly far ahead of the others'. Their tokens are not trusted, however many the others have
    /// granted since.
    pub(crate) fn ahead(&self, now: BootInstant) -> Vec<usize> {
        let limit = self.believable(now).unwrap_or(u64::MAX);
        let ahead = self.fresh(now).filter(|(_, it)| it.at_least(now) > limit);
        ahead.map(|(server, _)| server).collect()
    }

    /// The latest that a clock may show, or `None` if the clocks of too few are known.
    fn believable(&self, now: BootInstant) -> Option<u64> {
        let clocks = self.fresh(now).map(|(_, it)| it.at_most(now));
        let is_known = clocks.clone().count() >= majority(self.readings.len());
        is_known.then(|| believable(clocks))
    }

    fn fresh(&self, now: BootInstant) -> impl Iterator<Item = (usize, &Reading)> + Clone {
        let readings = self.readings.iter().enumerate();
        let readings = readings.filter_map(|(server, it)| Some((server, it.as_ref()?)));
        readings.filter(move |(_, it)| it.is_fresh(now, LONGEST))
    }

    /// The servers whose clocks are to be read with what is sent to them now. One that is ahead is read each time: it may have been
    /// put right.
    pub(crate) fn take_due(&mut self, now: BootInstant) -> Vec<usize> {
        let (all, ahead) = (mem::take(&mut self.was_exceeded), self.ahead(now));
        let is_old = |it: &Option<Reading>| !it.is_some_and(|it| it.is_fresh(now, OLD));
        let readings = self.readings.iter().enumerate();
        let due = readings.filter(|(server, it)| all || is_old(it) || ahead.contains(server));
        due.map(|(server, _)| server).collect()
    }

    pub(crate) fn read(&mut self, server: usize, reading: Reading) {
        self.readings[server] = Some(reading);
    }

    /// A majority has granted this token.
    pub(crate) fn granted(&mut self, token: Token) {
        self.last = self.last.max(token.get());
    }

    /// Servers have granted more than what was proposed.
    pub(crate) fn exceeded(&mut self) {
        self.was_exceeded = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const BASE: u64 = 50 * SECOND;

    fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// A clock that was read at one moment.
    fn reading(micros: u64, asked: BootInstant) -> Reading {
        Reading {
            micros,
            asked,
            answered: asked,
        }
    }

    /// The clocks of so many servers as they were read now, in microseconds after `BASE`.
    fn read(shown: &[Option<u64>]) -> (Clocks, BootInstant) {
        let (mut clocks, now) = (Clocks::new(shown.len()), BootInstant::now());
        for (server, shown) in shown.iter().enumerate() {
            if let Some(shown) = shown {
                clocks.read(server, reading(BASE + shown, now));
            }
        }
        (clocks, now)
    }

    /// What is proposed then, in microseconds after `BASE` and the margin.
    fn proposed(shown: &[Option<u64>]) -> Option<u64> {
        let (clocks, now) = read(shown);
        let token = clocks.propose(now)?;
        Some(token.get() - BASE - MARGIN.as_micros() as u64)
    }

    #[test]
    fn no_token_is_proposed_before_a_majority_has_shown_its_clocks() {
        assert_eq!(proposed(&[None; 3]), None);
        assert_eq!(proposed(&[Some(5), None, None]), None);
        assert_eq!(proposed(&[None, Some(5), Some(7)]), Some(7));
        assert_eq!(proposed(&[Some(5), Some(7), None, None, None]), None);
    }

    #[test]
    fn the_latest_clock_counts_unless_it_is_far_ahead_of_the_others() {
        assert_eq!(proposed(&[Some(9), Some(SECOND), Some(7)]), Some(SECOND));
        assert_eq!(proposed(&[Some(9), Some(2 * SECOND), Some(7)]), Some(9));
        assert_eq!(proposed(&[Some(2 * SECOND), Some(7), None]), Some(7));
    }

    #[test]
    fn a_clock_more_than_a_second_ahead_of_the_lower_half_is_not_trusted() {
        let ahead = |shown: &[Option<u64>]| {
            let (clocks, now) = read(shown);
            clocks.ahead(now)
        };
        let late = Some(SECOND + 1);
        assert!(ahead(&[Some(SECOND), Some(0), Some(0)]).is_empty());
        assert_eq!(ahead(&[late, Some(0), Some(0)]), [0]);
        assert_eq!(ahead(&[Some(0), late, None]), [1]);
        // The one that is behind is alone.
        assert!(ahead(&[late, Some(0), late]).is_empty());
        // Too few are known.
        assert!(ahead(&[late, Some(0), None, None, None]).is_empty());
    }

    #[test]
    fn a_late_answer_is_no_sign_of_a_clock_ahead() {
        let (mut clocks, now) = read(&[Some(0); 3]);
        let answered = now + micros(3 * SECOND);
        // The question took two seconds.
        let late = Reading {
            micros: BASE + 2 * SECOND,
            asked: now,
            answered,
        };
        clocks.read(1, late);
        assert!(clocks.ahead(answered).is_empty());
        let token = clocks.propose(answered).unwrap();
        assert_eq!(token.get(), BASE + 3 * SECOND + 1_000);
    }

    #[test]
    fn a_proposal_is_the_servers_clock_and_the_time_since() {
        let (clocks, now) = read(&[Some(0), Some(300), Some(200)]);
        let token = clocks.propose(now + micros(700)).unwrap();
        assert_eq!(token.get(), BASE + 300 + 700 + 1_000);
    }

    #[test]
    fn tokens_do_not_push_later_proposals_ahead_of_the_clocks() {
        let (mut clocks, start) = read(&[Some(0); 3]);
        for round in 1..=1000 {
            let now = start + micros(round * 50);
            // Another client has proposed half a second more.
            let token = BASE + round * 50 + SECOND / 2;
            clocks.granted(Token::new(token));
            assert_eq!(clocks.propose(now), Some(Token::new(token + 1)));
        }
        let end = start + micros(2 * SECOND);
        let ahead = clocks.propose(end).unwrap().get() - BASE - 2 * SECOND;
        assert_eq!(ahead, 1_000);
    }

    #[test]
    fn two_proposals_at_one_moment_differ() {
        let (mut clocks, now) = read(&[Some(0); 3]);
        let first = clocks.propose(now).unwrap();
        clocks.granted(first);
        let second = clocks.propose(now).unwrap();
        assert_eq!(second.get(), first.get() + 1);
    }

    #[test]
    fn a_clock_is_read_again_once_its_reading_is_old_and_no_longer_used_a_while_later() {
        let (mut clocks, now) = read(&[Some(0), None, Some(0)]);
        assert_eq!(clocks.take_due(now), [1]);
        assert_eq!(clocks.take_due(now + OLD), [1]);
        let later = now + OLD + micros(1);
        assert_eq!(clocks.take_due(later), [0, 1, 2]);
        clocks.read(0, reading(BASE, later));
        assert_eq!(clocks.take_due(later), [1, 2]);
        assert!(clocks.propose(now + LONGEST).is_some());
        assert_eq!(clocks.propose(now + LONGEST + micros(1)), None);
    }

    #[test]
    fn a_clock_that_is_ahead_is_read_each_time_and_counts_once_it_was_put_right() {
        let (mut clocks, now) = read(&[Some(0), Some(2 * SECOND), Some(0)]);
        for _ in 0..2 {
            assert_eq!(clocks.take_due(now), [1]);
        }
        clocks.read(1, reading(BASE + 10, now));
        assert!(clocks.take_due(now).is_empty());
        let token = clocks.propose(now).unwrap();
        assert_eq!(token.get(), BASE + 10 + 1_000);
    }

    #[test]
    fn all_clocks_are_read_again_once_servers_have_exceeded_a_proposal() {
        let (mut clocks, now) = read(&[Some(0); 3]);
        assert!(clocks.take_due(now).is_empty());
        clocks.exceeded();
        assert!(clocks.propose(now).is_some());
        assert_eq!(clocks.take_due(now), [0, 1, 2]);
        assert!(clocks.take_due(now).is_empty());
    }
}
