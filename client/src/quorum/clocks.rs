//! What the servers' clocks have shown, and the token that a quorum client proposes because of that. Never its own wall clock, which
//! may be an hour off and would push every server's tokens ahead with it. Never the time of a token either: a client may have
//! proposed that, and clients that learned from one another's proposals would run ahead of all clocks.

use std::time::Duration;

use crate::quorum::votes::{believable, majority};
use crate::value::{BootInstant, Token};

/// A clock is read again after so long.
const INTERVAL: Duration = Duration::from_secs(10);
/// A clock is not read again within that time, even if servers have exceeded a proposal: then others' tokens are the reason.
const PAUSE: Duration = Duration::from_secs(1);
/// A reading is used for so long: this machine's clock and the servers' do not run alike.
const LONGEST: Duration = Duration::from_secs(60);
/// In microseconds. A proposal may reach a server so much more slowly than `INFO` did. One that is slower still finds that the clock
/// shows more, and costs a round trip.
const MARGIN: u64 = 20_000;

/// What a server's clock has shown.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// Microseconds since 1970.
    micros: u64,
    asked: BootInstant,
}

impl Reading {
    /// What the clock shows now, at most. A proposal that is sent now arrives when the clock shows about that: it travels as long as
    /// the question did.
    fn at(&self, now: BootInstant) -> u64 {
        let since = now.since(self.asked).as_micros() as u64;
        self.micros.saturating_add(since)
    }
}

#[derive(Debug, Clone, Default)]
struct Clock {
    /// When it was last asked for.
    asked: Option<BootInstant>,
    reading: Option<Reading>,
}

/// The clocks of a quorum's servers, and the tokens that they would grant now.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// By server.
    all: Vec<Clock>,
    /// The largest token that has come to be.
    last: u64,
}

impl Clocks {
    pub(crate) fn new(servers: usize) -> Clocks {
        Clocks {
            all: vec![Clock::default(); servers],
            last: 0,
        }
    }

    /// A token that all servers can probably grant, or `None` if the clocks of too few are known. It is what the latest clock
    /// shows, unless that is far ahead of the others.
    pub(crate) fn propose(&self, now: BootInstant) -> Option<Token> {
        let readings = self.all.iter().filter_map(|it| it.reading.as_ref());
        let fresh = readings.filter(|it| now.since(it.asked) <= LONGEST);
        let clocks = fresh.map(|it| it.at(now).saturating_add(MARGIN));
        if clocks.clone().count() < majority(self.all.len()) {
            return None;
        }
        let limit = believable(clocks.clone());
        let latest = clocks.filter(|it| *it <= limit).max()?;
        Some(Token::new(latest.max(self.last.saturating_add(1))))
    }

    /// Whether a server's clock is to be read now. If so, it is not to be read again for a while.
    pub(crate) fn is_due(&mut self, server: usize, now: BootInstant) -> bool {
        let asked = &mut self.all[server].asked;
        let is_due = asked.is_none_or(|asked| now.since(asked) > INTERVAL);
        if is_due {
            *asked = Some(now);
        }
        is_due
    }

    /// A server that was asked at `asked` for its clock has shown `micros`.
    pub(crate) fn read(&mut self, server: usize, micros: u64, asked: BootInstant) {
        self.all[server].reading = Some(Reading { micros, asked });
    }

    /// A majority has granted this token.
    pub(crate) fn granted(&mut self, token: Token) {
        self.last = self.last.max(token.get());
    }

    /// Servers have granted more than what was proposed: their clocks may have changed.
    pub(crate) fn exceeded(&mut self, now: BootInstant) {
        for clock in &mut self.all {
            clock.asked = clock.asked.filter(|asked| now.since(*asked) <= PAUSE);
        }
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

    /// The clocks of so many servers as they were read now, in microseconds after `BASE`.
    fn read(shown: &[Option<u64>]) -> (Clocks, BootInstant) {
        let (mut clocks, now) = (Clocks::new(shown.len()), BootInstant::now());
        for (server, shown) in shown.iter().enumerate() {
            if let Some(shown) = shown {
                clocks.read(server, BASE + shown, now);
            }
        }
        (clocks, now)
    }

    /// What is proposed then, in microseconds after `BASE` and the margin.
    fn proposed(shown: &[Option<u64>]) -> Option<u64> {
        let (clocks, now) = read(shown);
        let token = clocks.propose(now)?;
        Some(token.get() - BASE - MARGIN)
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
        let absurd = Some(u64::MAX - BASE);
        assert_eq!(proposed(&[Some(9), absurd, Some(7)]), Some(9));
    }

    #[test]
    fn a_proposal_is_the_servers_clock_and_the_time_since() {
        let (clocks, now) = read(&[Some(0), Some(300), Some(200)]);
        let token = clocks.propose(now + micros(700)).unwrap();
        assert_eq!(token.get(), BASE + 300 + 700 + MARGIN);
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
        assert_eq!(ahead, MARGIN);
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
    fn a_clock_that_was_put_right_counts_once_it_is_read_again() {
        let (mut clocks, now) = read(&[Some(0), Some(SECOND / 2), Some(0)]);
        clocks.read(1, BASE + 10, now);
        let token = clocks.propose(now).unwrap();
        assert_eq!(token.get(), BASE + 10 + MARGIN);
    }

    #[test]
    fn a_reading_is_not_used_for_ever() {
        let (clocks, now) = read(&[Some(0), None, Some(0)]);
        assert!(clocks.propose(now + LONGEST).is_some());
        assert_eq!(clocks.propose(now + LONGEST + micros(1)), None);
    }

    #[test]
    fn a_clock_is_read_once_in_an_interval_whether_it_is_shown_or_not() {
        let (mut clocks, now) = (Clocks::new(3), BootInstant::now());
        assert!(clocks.is_due(1, now));
        assert!(!clocks.is_due(1, now + INTERVAL));
        assert!(clocks.is_due(2, now + INTERVAL));
        assert!(clocks.is_due(1, now + INTERVAL + micros(1)));
    }

    #[test]
    fn a_clock_is_read_sooner_once_servers_have_exceeded_a_proposal() {
        let (mut clocks, now) = (Clocks::new(3), BootInstant::now());
        assert!(clocks.is_due(1, now));
        clocks.exceeded(now + PAUSE);
        assert!(!clocks.is_due(1, now + PAUSE));
        clocks.exceeded(now + PAUSE + micros(1));
        assert!(clocks.is_due(1, now + PAUSE + micros(1)));
    }
}
