//! What may be believed of a hold on one server: by which token, and until when.
//!
//! A hold is believed in until the last confirmed request was sent, plus the lease, less the drift. A belief that has
//! expired is never resumed.

use std::time::Duration;

use crate::value::{BootInstant, Error, Lease, Loss, Token};

/// What a server has granted, or confirmed, with one reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Grant {
    pub(crate) token: Token,
    /// The earliest moment at which the server can have granted it: when the request was sent, or later if a letter says so.
    pub(crate) since: BootInstant,
    /// How long it may be believed in.
    pub(crate) until: BootInstant,
}

/// A hold, as far as it may be believed in.
#[derive(Debug, Clone)]
pub(crate) struct Belief {
    token: Token,
    /// What renewals ask for.
    lease: Lease,
    /// The longest lease that was asked for, and not refused: the server may keep the hold for so long.
    longest: Lease,
    /// When the last confirmed request was sent.
    confirmed: BootInstant,
    until: BootInstant,
    /// When it ends, however often it is renewed.
    cap: Option<BootInstant>,
    /// What is on its way that changes the hold.
    change: Option<Change>,
    loss: Option<Loss>,
}

/// What changes a hold by more than its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The token may change at any moment.
    Upgrade,
    /// Another name may have it at any moment, for a shorter time.
    Pass,
}

/// What a denied renewal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The hold is gone.
    Lost,
    /// A change of the hold explains it, so the denial means nothing by itself.
    Stale,
}

impl Belief {
    pub(crate) fn new(grant: Grant, lease: Lease, max_hold: Option<Duration>) -> Belief {
        Belief {
            token: grant.token,
            lease,
            longest: lease,
            confirmed: grant.since,
            until: grant.until,
            cap: max_hold.map(|max| grant.since + max),
            change: None,
            loss: None,
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn longest_lease(&self) -> Duration {
        self.longest.duration()
    }

    /// When the last confirmed request was sent.
    pub(crate) fn confirmed(&self) -> BootInstant {
        self.confirmed
    }

    pub(crate) fn deadline(&self) -> BootInstant {
        self.cap.map_or(self.until, |cap| self.until.min(cap))
    }

    /// Why it is lost, if it is by now.
    pub(crate) fn loss(&mut self, now: BootInstant) -> Option<Loss> {
        if self.loss.is_none() && now >= self.deadline() {
            self.loss = Some(match self.cap {
                Some(cap) if cap <= now => Loss::HoldLimit,
                _ => Loss::Expired,
            });
        }
        self.loss
    }

    /// Why it may not be believed in now: it is lost, or being passed on.
    pub(crate) fn doubt(&mut self, now: BootInstant) -> Option<Loss> {
        let is_passing = self.change == Some(Change::Pass);
        self.loss(now).or(is_passing.then_some(Loss::Passed))
    }

    /// An error where it may not be believed in.
    pub(crate) fn check(&mut self, now: BootInstant) -> Result<(), Error> {
        self.doubt(now)
            .map_or(Ok(()), |loss| Err(Error::Lost(loss)))
    }

    /// It is over; the first reason stays.
    pub(crate) fn lose(&mut self, loss: Loss) {
        self.loss.get_or_insert(loss);
    }

    /// The lease to ask for now, its own or another, no longer than it may last.
    pub(crate) fn lease_to_ask(
        &mut self,
        lease: Option<Lease>,
        now: BootInstant,
    ) -> Result<Lease, Error> {
        self.check(now)?;
        let lease = lease.unwrap_or(self.lease);
        self.longest = self.longest.max(lease);
        Ok(self.cap.map_or(lease, |cap| lease.limited(cap.since(now))))
    }

    /// The server refused a longer lease.
    pub(crate) fn forget_longest_lease(&mut self) {
        self.longest = self.lease;
    }

    /// It ends at `cap` at the latest.
    pub(crate) fn limit(&mut self, cap: BootInstant) {
        self.cap = Some(self.cap.map_or(cap, |before| before.min(cap)));
    }

    /// When to renew it next; `None` where no renewal would make it last longer, or another name may have it.
    pub(crate) fn next_renewal(&self) -> Option<BootInstant> {
        let is_capped = self.cap.is_some_and(|cap| cap <= self.until);
        let is_passing = self.change == Some(Change::Pass);
        (!is_capped && !is_passing).then(|| self.confirmed + self.lease.renewal_period())
    }

    /// How long after a renewal that failed the next one is sent.
    pub(crate) fn retry_pause(&self) -> Duration {
        const LONGEST: Duration = Duration::from_millis(200);
        (self.lease.duration() / 20).clamp(Duration::from_millis(5), LONGEST)
    }

    pub(crate) fn renewal_period(&self) -> Duration {
        self.lease.renewal_period()
    }

    /// The token that a renewal names; none while an upgrade may change it.
    pub(crate) fn token_to_renew(&self) -> Option<Token> {
        (!self.is_upgrading()).then_some(self.token)
    }

    pub(crate) fn is_upgrading(&self) -> bool {
        self.change == Some(Change::Upgrade)
    }

    /// A change begins, or has ended.
    pub(crate) fn set_change(&mut self, change: Option<Change>) {
        self.change = change;
    }

    /// The server has the hold: by what was sent at `grant.since`.
    pub(crate) fn confirm(&mut self, grant: Grant) {
        // An earlier renewal says nothing of a hold that is passed on meanwhile.
        if self.loss.is_none() && self.change != Some(Change::Pass) {
            self.until = self.until.max(grant.until);
            self.confirmed = self.confirmed.max(grant.since);
        }
    }

    /// An upgrade was granted, by a new token.
    pub(crate) fn upgrade(&mut self, grant: Grant) {
        self.confirm(grant);
        self.raise(grant.token);
    }

    /// The server has the hold by this token.
    pub(crate) fn raise(&mut self, token: Token) {
        self.token = self.token.max(token);
    }

    /// The server replied null to a renewal that named `asked`.
    pub(crate) fn deny(&mut self, asked: Option<Token>) -> Denial {
        match (self.change, asked) {
            (Some(Change::Pass), _) => Denial::Stale,
            (change, Some(asked)) if change.is_some() || asked != self.token => Denial::Stale,
            _ => {
                self.lose(Loss::Denied);
                Denial::Lost
            }
        }
    }
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
        Grant {
            token: Token::new(token),
            since,
            until: lease().believed_until(since),
        }
    }

    fn belief(since: BootInstant, max_hold: Option<Duration>) -> Belief {
        Belief::new(grant(7, since), lease(), max_hold)
    }

    #[test]
    fn a_confirmed_renewal_moves_the_deadline_and_an_expired_belief_is_never_resumed() {
        let now = BootInstant::now();
        let mut belief = belief(now, None);
        assert_eq!(belief.deadline(), now + ms(988));
        belief.confirm(grant(7, now + ms(500)));
        assert_eq!(belief.deadline(), now + ms(1488));
        belief.confirm(grant(7, now + ms(100)));
        assert_eq!(belief.deadline(), now + ms(1488), "a late reply");
        assert_eq!(belief.loss(now + ms(1487)), None);
        assert_eq!(belief.loss(now + ms(1488)), Some(Loss::Expired));
        belief.confirm(grant(7, now + ms(1400)));
        assert_eq!(belief.loss(now + ms(1488)), Some(Loss::Expired), "resumed");
    }

    #[test]
    fn a_denial_is_a_loss_unless_an_upgrade_has_changed_the_token_since() {
        let now = BootInstant::now();
        let mut belief = belief(now, None);
        let asked = belief.token_to_renew();
        belief.set_change(Some(Change::Upgrade));
        assert_eq!(belief.token_to_renew(), None, "it may change at any moment");
        assert_eq!(belief.deny(asked), Denial::Stale);
        belief.set_change(None);
        belief.upgrade(grant(9, now));
        assert_eq!(belief.deny(asked), Denial::Stale);
        assert_eq!(belief.loss(now), None);
        assert_eq!(belief.deny(belief.token_to_renew()), Denial::Lost);
        assert_eq!(belief.loss(now), Some(Loss::Denied));
    }

    #[test]
    fn a_passed_hold_is_neither_believed_in_nor_extended_by_earlier_renewals() {
        let now = BootInstant::now();
        let mut belief = belief(now, None);
        let asked = belief.token_to_renew();
        belief.set_change(Some(Change::Pass));
        assert_eq!(belief.doubt(now), Some(Loss::Passed));
        assert!(belief.lease_to_ask(None, now).is_err());
        assert_eq!(belief.next_renewal(), None);
        belief.confirm(grant(7, now + ms(300)));
        assert_eq!(belief.deadline(), now + ms(988), "an earlier renewal");
        assert_eq!(belief.deny(asked), Denial::Stale);
        assert_eq!(
            belief.deny(None),
            Denial::Stale,
            "a renewal sent during an upgrade"
        );
        assert_eq!(
            belief.loss(now),
            None,
            "the server may refuse to pass it on"
        );
        belief.set_change(None);
        assert_eq!(belief.doubt(now), None);
    }

    #[test]
    fn no_hold_is_believed_in_or_renewed_past_max_hold() {
        let now = BootInstant::now();
        let mut capped = belief(now, Some(ms(50)));
        assert_eq!(capped.deadline(), now + ms(50));
        assert_eq!(capped.next_renewal(), None, "it would change nothing");
        assert!(capped.lease_to_ask(None, now).unwrap() < lease());
        assert!(capped.lease_to_ask(None, now + ms(50)).is_err());
        assert_eq!(capped.loss(now + ms(50)), Some(Loss::HoldLimit));
        let mut later = belief(now, Some(ms(5000)));
        assert!(later.next_renewal().is_some());
        later.limit(now + ms(300));
        later.limit(now + ms(400));
        assert_eq!(later.deadline(), now + ms(300));
        let mut never_renewed = belief(now, Some(ms(5000)));
        assert_eq!(never_renewed.loss(now + ms(988)), Some(Loss::Expired));
    }

    #[test]
    fn a_hold_is_renewed_and_retried_as_often_as_its_lease_requires() {
        let now = BootInstant::now();
        let mut belief = belief(now, None);
        assert_eq!(belief.next_renewal(), Some(now + belief.renewal_period()));
        assert!((ms(300)..ms(500)).contains(&belief.renewal_period()));
        belief.confirm(grant(7, now + ms(100)));
        belief.confirm(grant(7, now + ms(50)));
        assert_eq!(belief.confirmed(), now + ms(100));
        for (lease, pause) in [(10, 5), (1_000, 50), (60_000, 200)] {
            let lease = Lease::new(ms(lease)).unwrap();
            let belief = Belief::new(grant(7, now), lease, None);
            assert_eq!(belief.retry_pause(), ms(pause), "{lease:?}");
        }
    }

    #[test]
    fn the_longest_requested_lease_counts_until_the_server_refuses_it() {
        let now = BootInstant::now();
        let mut belief = belief(now, None);
        for asked in [5_000, 2_000] {
            let asked = Lease::new(ms(asked)).unwrap();
            assert_eq!(belief.lease_to_ask(Some(asked), now).unwrap(), asked);
            assert_eq!(belief.longest_lease(), ms(5_000));
        }
        belief.forget_longest_lease();
        assert_eq!(belief.longest_lease(), ms(1_000));
    }
}
