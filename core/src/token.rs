//! The token clock: a hybrid of a counter and the wall clock.
//!
//! `token = max(last + 1, wall clock in microseconds)`. On one server the counter makes tokens
//! grow whatever the wall clock does. After a failover or a restart that lost `last`, the wall
//! clock has moved on further than the tokens had. The idea is that of hybrid logical clocks
//! (Kulkarni, Demirbas et al., "Logical Physical Clocks", 2014), with one process.

use crate::types::{Micros, Token};

/// How far ahead of the wall clock a caller may push the tokens: one hour, in microseconds.
const AHEAD: u64 = 3_600_000_000;

/// How far the clock jumps if its last tokens may be lost: 60 seconds, in microseconds.
const LOST_TAIL: u64 = 60_000_000;

/// Hands out fencing tokens, each larger than every one before it.
#[derive(Clone, Debug, Default)]
pub struct TokenClock {
    last: u64,
}

/// A requested token lies above [`TokenClock::bound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenTooHigh {
    /// The largest token that may be requested now.
    pub bound: Token,
}

impl TokenClock {
    /// A clock that has handed out nothing yet.
    pub const fn new() -> Self {
        Self { last: 0 }
    }

    /// The last token handed out or seen, 0 for none.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// The largest token a caller may ask for: max(last token, wall clock + 1 hour). Without this bound one call could use up the numbers
    /// for everybody.
    pub fn bound(&self, wall: Micros) -> Token {
        let bound = self
            .last
            .max(wall.0.saturating_add(AHEAD))
            .clamp(1, Token::MAX.get());
        Token::new(bound).unwrap_or(Token::MAX)
    }

    /// `token` is within the bound.
    ///
    /// # Errors
    /// [`TokenTooHigh`] with the bound if it is not.
    pub fn check(&self, token: Token, wall: Micros) -> Result<(), TokenTooHigh> {
        let bound = self.bound(wall);
        if token > bound {
            Err(TokenTooHigh { bound })
        } else {
            Ok(())
        }
    }

    /// The next token: larger than every one before, at least `at_least`, and no lower than the
    /// wall clock. `None` once 2^53 − 1 has been handed out, which the bound puts centuries away.
    pub fn next(&mut self, wall: Micros, at_least: Option<Token>) -> Option<Token> {
        let floor = at_least.map_or(1, Token::get);
        let wall = wall.0.min(Token::MAX.get());
        let token = Token::new((self.last + 1).max(wall).max(floor))?;
        self.last = token.get();
        Some(token)
    }

    /// Every later token is larger than `token`.
    pub fn raise(&mut self, token: Token) {
        self.last = self.last.max(token.get());
    }

    /// A process or a new primary begins to hand out tokens with the `last` that it knows. If that is ahead of the wall clock, the clock
    /// was a bare counter whose last tokens may be lost, so it jumps by 60 seconds' worth of microseconds.
    pub fn resume(&mut self, wall: Micros) {
        if self.last > wall.0 {
            self.last = self.last.saturating_add(LOST_TAIL).min(Token::MAX.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(value: u64) -> Token {
        Token::new(value).expect("a token")
    }

    #[test]
    fn tokens_follow_the_wall_clock_and_grow_when_it_steps_back() {
        let mut clock = TokenClock::new();
        assert_eq!(clock.next(Micros(1_000), None), Some(token(1_000)));
        assert_eq!(clock.next(Micros(5), None), Some(token(1_001)));
        assert_eq!(clock.next(Micros(2_000), None), Some(token(2_000)));
    }

    #[test]
    fn a_token_is_at_least_the_requested_one() {
        let mut clock = TokenClock::new();
        assert_eq!(clock.next(Micros(10), Some(token(500))), Some(token(500)));
        assert_eq!(clock.next(Micros(10), Some(token(3))), Some(token(501)));
    }

    #[test]
    fn the_bound_is_an_hour_ahead_or_the_last_token() {
        let mut clock = TokenClock::new();
        assert_eq!(clock.bound(Micros(7)), token(7 + AHEAD));
        clock.raise(token(2 * AHEAD));
        assert_eq!(clock.bound(Micros(7)), token(2 * AHEAD));
        assert_eq!(clock.check(token(2 * AHEAD), Micros(7)), Ok(()));
        let bound = token(2 * AHEAD);
        assert_eq!(
            clock.check(token(2 * AHEAD + 1), Micros(7)),
            Err(TokenTooHigh { bound })
        );
    }

    #[test]
    fn the_last_number_is_granted_and_then_none() {
        let mut clock = TokenClock::new();
        assert_eq!(clock.next(Micros(u64::MAX), None), Some(Token::MAX));
        assert_eq!(clock.next(Micros(0), None), None);
        assert_eq!(clock.last(), Token::MAX.get());
    }

    #[test]
    fn a_counter_ahead_of_the_wall_clock_jumps_on_resume_and_one_behind_does_not() {
        let mut clock = TokenClock::new();
        clock.raise(token(1_000));
        clock.resume(Micros(1_000));
        assert_eq!(clock.last(), 1_000);
        clock.resume(Micros(999));
        assert_eq!(clock.last(), 1_000 + LOST_TAIL);
    }
}
