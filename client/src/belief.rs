//! What may be believed of a hold: by which token, in which mode, and until when. Pure: every function takes `now`.
//!
//! A hold has one part for each key, or for each server of a quorum. A part is believed in until the last confirmed request
//! was sent, plus the lease, less the drift. The hold is believed in as long as enough of its parts are: all keys, or a majority
//! of the servers. A belief that has expired is never resumed.

use std::time::Duration;

use crate::error::Loss;
use crate::name::Mode;
use crate::time::{BootInstant, Lease};
use crate::token::Token;

/// What a server has granted or confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) token: Token,
    /// The earliest moment at which the server can have granted it: when the request was sent, or later if a letter says so.
    pub(crate) since: BootInstant,
    /// How long it may be believed in.
    pub(crate) until: BootInstant,
    /// The token that the server itself made; the client may have raised it since.
    pub(crate) made: Token,
}

/// One key on one server, as far as it may be believed in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) grant: Grant,
    /// When to renew it next.
    renewal: BootInstant,
    /// The server has it no more.
    is_denied: bool,
}

/// A hold, as far as it may be believed in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Belief {
    pub(crate) token: Token,
    pub(crate) mode: Mode,
    /// Whether the server counts it as a reader, too, if it writes.
    pub(crate) reads: bool,
    /// What renewals ask for.
    lease: Lease,
    /// When it ends, however often it is renewed.
    cap: Option<BootInstant>,
    /// How many of its parts must be held.
    pub(crate) needed: usize,
    pub(crate) parts: Vec<Part>,
    /// It is being passed on: another name may have it at any moment, for a shorter time.
    pub(crate) is_passing: bool,
    loss: Option<Loss>,
}

impl Grant {
    /// A grant that a server made at `since` at the earliest.
    pub(crate) fn new(token: Token, since: BootInstant, lease: Lease) -> Grant {
        Grant {
            token,
            since,
            until: lease.believed_until(since),
            made: token,
        }
    }
}

impl Part {
    pub(crate) fn new(grant: Grant, lease: Lease) -> Part {
        let renewal = grant.since + lease.renewal_period();
        Part {
            grant,
            renewal,
            is_denied: false,
        }
    }

    fn is_held(&self, now: BootInstant) -> bool {
        !self.is_denied && now < self.grant.until
    }

    fn ends_before(&self, cap: Option<BootInstant>) -> bool {
        cap.is_none_or(|cap| self.grant.until < cap)
    }
}

impl Belief {
    /// A hold that was granted by `token`, of which `needed` parts must be held.
    pub(crate) fn new(
        token: Token,
        mode: Mode,
        lease: Lease,
        needed: usize,
        parts: Vec<Part>,
    ) -> Belief {
        Belief {
            token,
            mode,
            reads: mode == Mode::Read,
            lease,
            cap: None,
            needed,
            parts,
            is_passing: false,
            loss: None,
        }
    }

    /// Ends it at `limit` after its grant at the latest.
    pub(crate) fn limit(&mut self, limit: Duration) {
        let granted = self.parts.iter().map(|part| part.grant.since).min();
        self.cap = granted.map(|granted| granted + limit);
    }

    /// Until when it is believed in: until too few parts are. The moment lies in the past where too few are already.
    pub(crate) fn deadline(&self) -> BootInstant {
        let held = self.parts.iter().filter(|part| !part.is_denied);
        let until =
            believed_until(held.map(|part| part.grant.until), self.needed).unwrap_or_default();
        self.cap.map_or(until, |cap| until.min(cap))
    }

    /// Why it is lost, if it is by now.
    pub(crate) fn loss(&mut self, now: BootInstant) -> Option<Loss> {
        if self.loss.is_none() && now >= self.deadline() {
            let there = self.parts.iter().filter(|part| !part.is_denied).count();
            self.loss = Some(match self.cap {
                Some(cap) if cap <= now => Loss::HoldLimit,
                _ if there < self.needed => Loss::Denied,
                _ => Loss::Expired,
            });
        }
        self.loss
    }

    /// Why it may not be believed in now: it is lost, or being passed on.
    pub(crate) fn doubt(&mut self, now: BootInstant) -> Option<Loss> {
        self.loss(now).or(self.is_passing.then_some(Loss::Passed))
    }

    /// Ends it; the first reason stays. Returns whether it was held until now.
    pub(crate) fn lose(&mut self, loss: Loss, now: BootInstant) -> bool {
        let was_held = self.loss(now).is_none();
        self.loss.get_or_insert(loss);
        was_held
    }

    /// How many of its parts were confirmed by what was sent at this moment or later.
    pub(crate) fn confirmed_since(&self, moment: BootInstant) -> usize {
        self.parts
            .iter()
            .filter(|part| !part.is_denied && part.grant.since >= moment)
            .count()
    }

    /// The lease to ask for now: no longer than the hold may last.
    pub(crate) fn lease(&self, now: BootInstant) -> Lease {
        self.cap
            .map_or(self.lease, |cap| self.lease.limited(cap.since(now)))
    }

    /// When the next renewal is due; `None` where none would make it last longer, or another name may have it.
    pub(crate) fn next_renewal(&self, now: BootInstant) -> Option<BootInstant> {
        let renewable = self.parts.iter().filter(|part| part.is_held(now));
        let renewable = renewable.filter(|part| part.ends_before(self.cap));
        let next = renewable.map(|part| part.renewal).min();
        next.filter(|_| !self.is_passing)
    }

    /// The parts whose renewal is due. The next one is due once they are [`confirmed`](Belief::confirm) or have
    /// [`failed`](Belief::fail), or a period later.
    pub(crate) fn begin_renewals(&mut self, now: BootInstant) -> Vec<usize> {
        let mut due = Vec::new();
        for (number, part) in self.parts.iter_mut().enumerate() {
            if part.is_held(now) && part.ends_before(self.cap) && part.renewal <= now {
                part.renewal = now + self.lease.renewal_period();
                due.push(number);
            }
        }
        due
    }

    /// The parts that may be renewed.
    pub(crate) fn held(&self, now: BootInstant) -> Vec<usize> {
        let parts = 0..self.parts.len();
        parts
            .filter(|number| self.parts[*number].is_held(now))
            .collect()
    }

    /// A server has a part of the hold, by what was sent at `grant.since`. A part that has expired is not resumed.
    pub(crate) fn confirm(&mut self, number: usize, grant: Grant, now: BootInstant) {
        let part = &mut self.parts[number];
        // An earlier renewal says nothing of a hold that is passed on meanwhile.
        if part.is_held(now) && !self.is_passing {
            part.grant.until = part.grant.until.max(grant.until);
            part.grant.since = part.grant.since.max(grant.since);
            part.renewal = part.grant.since + self.lease.renewal_period();
            part.grant.token = part.grant.token.max(grant.token);
        }
    }

    /// A renewal of a part was denied: the server has it no more, unless another name may have it.
    pub(crate) fn deny(&mut self, number: usize) {
        self.parts[number].is_denied |= !self.is_passing;
    }

    /// A renewal of a part has failed, or its outcome is unknown.
    pub(crate) fn fail(&mut self, number: usize, now: BootInstant) {
        self.parts[number].renewal = now + self.lease.retry_pause();
    }

    /// It writes from now on, by this grant.
    pub(crate) fn upgrade(&mut self, grant: Grant, now: BootInstant) {
        self.confirm(0, grant, now);
        self.token = self.token.max(grant.token);
        self.mode = Mode::Write;
    }
}

/// Until when at least `needed` of several parts are believed in; `None` if these are fewer.
pub(crate) fn believed_until(
    until: impl Iterator<Item = BootInstant> + Clone,
    needed: usize,
) -> Option<BootInstant> {
    let spare = until.clone().count().checked_sub(needed)?;
    nth(until, spare)
}

/// The value with at most `n` smaller ones, the largest of those: of few, so that they need no list.
pub(crate) fn nth<T: Ord>(values: impl Iterator<Item = T> + Clone, n: usize) -> Option<T> {
    let smaller = |it: &T| values.clone().filter(|other| other < it).count();
    values.clone().filter(|it| smaller(it) <= n).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn lease() -> Lease {
        Lease::new(ms(1000)).unwrap()
    }

    fn grant(token: u64, since: BootInstant) -> Grant {
        Grant::new(Token::new(token), since, lease())
    }

    fn belief(since: BootInstant) -> Belief {
        Belief::new(
            Token::new(7),
            Mode::Read,
            lease(),
            1,
            vec![Part::new(grant(7, since), lease())],
        )
    }

    fn of_three(now: BootInstant, needed: usize) -> Belief {
        let parts = [0, 100, 200].map(|late| Part::new(grant(7, now + ms(late)), lease()));
        Belief::new(Token::new(7), Mode::Write, lease(), needed, parts.to_vec())
    }

    #[test]
    fn a_confirmed_renewal_moves_the_deadline_and_an_expired_belief_is_never_resumed() {
        let now = BootInstant::now();
        let mut belief = belief(now);
        assert_eq!(belief.deadline(), now + ms(988));
        belief.confirm(0, grant(7, now + ms(500)), now + ms(501));
        assert_eq!(belief.deadline(), now + ms(1488));
        belief.confirm(0, grant(7, now + ms(100)), now + ms(502));
        assert_eq!(belief.deadline(), now + ms(1488), "a late reply");
        assert_eq!(belief.loss(now + ms(1487)), None);
        belief.confirm(0, grant(7, now + ms(1400)), now + ms(1488));
        assert!(belief.loss(now + ms(1488)).is_some(), "resumed");
        let mut unseen = self::belief(now);
        assert_eq!(unseen.loss(now + ms(988)), Some(Loss::Expired));
    }

    #[test]
    fn an_upgrade_gives_a_new_token_and_a_denial_is_a_loss_meanwhile_and_after() {
        let now = BootInstant::now();
        let mut upgraded = belief(now);
        upgraded.confirm(0, grant(9, now), now);
        assert_eq!(upgraded.token, Token::new(7), "it is not known yet");
        upgraded.upgrade(grant(9, now), now);
        assert_eq!((upgraded.loss(now), upgraded.token), (None, Token::new(9)));
        let mut gone = belief(now);
        gone.deny(0);
        for mut belief in [gone, upgraded] {
            belief.deny(0);
            assert_eq!(belief.loss(now), Some(Loss::Denied));
        }
    }

    #[test]
    fn a_passed_hold_is_neither_believed_in_nor_extended_by_earlier_renewals() {
        let now = BootInstant::now();
        let mut belief = belief(now);
        belief.is_passing = true;
        assert_eq!(belief.doubt(now), Some(Loss::Passed));
        assert_eq!(belief.next_renewal(now), None);
        belief.confirm(0, grant(7, now + ms(300)), now + ms(301));
        assert_eq!(belief.deadline(), now + ms(988), "an earlier renewal");
        belief.deny(0);
        assert_eq!(
            belief.loss(now),
            None,
            "the server may refuse to pass it on"
        );
        belief.is_passing = false;
        assert_eq!(belief.doubt(now), None);
    }

    #[test]
    fn no_hold_is_believed_in_or_renewed_past_its_limit() {
        let now = BootInstant::now();
        let mut capped = belief(now);
        capped.limit(ms(50));
        assert_eq!(capped.deadline(), now + ms(50));
        assert_eq!(capped.next_renewal(now), None, "it would change nothing");
        assert!(capped.lease(now) < lease());
        assert_eq!(capped.loss(now + ms(50)), Some(Loss::HoldLimit));
        let mut later = belief(now);
        later.limit(ms(5000));
        assert!(later.next_renewal(now).is_some());
        assert_eq!(later.lease(now), lease());
        assert_eq!(
            later.loss(now + ms(988)),
            Some(Loss::Expired),
            "never renewed"
        );
    }

    #[test]
    fn a_hold_is_renewed_at_a_third_of_its_lease_and_once_at_a_time() {
        let now = BootInstant::now();
        let mut belief = belief(now);
        let due = now + lease().renewal_period();
        assert_eq!(belief.next_renewal(now), Some(due));
        assert!(belief.begin_renewals(now).is_empty());
        assert_eq!(belief.begin_renewals(due), [0]);
        assert!(belief.begin_renewals(due).is_empty(), "it is on its way");
        belief.fail(0, due);
        assert_eq!(belief.next_renewal(now), Some(due + ms(50)), "again");
    }

    #[test]
    fn of_several_keys_all_must_be_held_and_of_several_servers_a_majority() {
        let now = BootInstant::now();
        assert_eq!(of_three(now, 3).deadline(), now + ms(988));
        assert_eq!(of_three(now, 2).deadline(), now + ms(1088));
        let (mut keys, mut servers) = (of_three(now, 3), of_three(now, 2));
        keys.deny(1);
        servers.deny(1);
        assert_eq!(
            (keys.loss(now), servers.loss(now)),
            (Some(Loss::Denied), None)
        );
        assert_eq!(servers.deadline(), now + ms(988));
        servers.deny(0);
        assert_eq!(servers.loss(now), Some(Loss::Denied));
    }

    #[test]
    fn the_first_reason_of_a_loss_stays() {
        let now = BootInstant::now();
        let mut belief = belief(now);
        assert!(belief.lose(Loss::Released, now));
        assert!(!belief.lose(Loss::Denied, now));
        assert_eq!(belief.loss(now + ms(5000)), Some(Loss::Released));
    }
}
