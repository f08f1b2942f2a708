//! What may be believed of a hold: on which servers it is, by which tokens, and until when.
//!
//! On one server it is believed in until the last confirmed request was sent, plus the lease, less the drift; over a quorum
//! until so much is over on all but a minority. A belief that has run out is never taken up again.

use std::time::Duration;

use crate::value::clock::BootInstant;
use crate::value::error::Loss;
use crate::value::lease::Lease;
use crate::value::token::Token;

/// What is known of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Share {
    /// It has granted the hold by this token, and keeps it until then.
    Held { token: Token, until: BootInstant },
    /// It was asked, and has not answered (yet).
    Unknown,
    /// It has said that there is nothing.
    None,
}

/// One server's shares need no list.
#[derive(Debug, Clone)]
pub(crate) enum Shares {
    One(Share),
    Many(Box<[Share]>),
}

impl Shares {
    pub(crate) fn all(&self) -> &[Share] {
        match self {
            Shares::One(one) => std::slice::from_ref(one),
            Shares::Many(many) => many,
        }
    }

    pub(crate) fn at(&mut self, server: usize) -> &mut Share {
        match self {
            Shares::One(one) => one,
            Shares::Many(many) => &mut many[server],
        }
    }

    /// More than half.
    pub(crate) fn majority(&self) -> usize {
        self.all().len() / 2 + 1
    }
}

/// A hold, as far as it may be believed in.
#[derive(Debug, Clone)]
pub(crate) struct Belief {
    pub(crate) token: Token,
    pub(crate) shares: Shares,
    pub(crate) lease: Lease,
    /// The longest lease that was asked for.
    longest: Lease,
    /// When it ends however often it is renewed.
    pub(crate) cap: Option<BootInstant>,
    /// A change of it is on its way: nobody knows by which token the servers have it.
    pub(crate) changing: bool,
    deadline: BootInstant,
    loss: Option<Loss>,
}

impl Belief {
    pub(crate) fn new(
        token: Token,
        shares: Shares,
        lease: Lease,
        cap: Option<BootInstant>,
    ) -> Belief {
        let mut belief = Belief {
            token,
            shares,
            lease,
            longest: lease,
            cap,
            changing: false,
            deadline: BootInstant::default(),
            loss: None,
        };
        belief.count();
        belief
    }

    pub(crate) fn deadline(&self) -> BootInstant {
        self.deadline
    }

    /// Why it is lost, if it is by now.
    pub(crate) fn loss(&mut self, now: BootInstant) -> Option<Loss> {
        if self.loss.is_none() && now >= self.deadline {
            let is_capped = self.cap.is_some_and(|cap| cap <= now);
            self.loss = Some(match is_capped {
                true => Loss::HoldLimit,
                false => Loss::Expired,
            });
        }
        self.loss
    }

    /// The loss that was found so far.
    pub(crate) fn known_loss(&self) -> Option<Loss> {
        self.loss
    }

    /// It is over; the first reason stays.
    pub(crate) fn lose(&mut self, loss: Loss) {
        self.loss.get_or_insert(loss);
    }

    /// The lease to renew it by, no longer than it may last; `None` if it may not any more.
    pub(crate) fn lease_now(&self, now: BootInstant) -> Option<Lease> {
        self.within_cap(self.lease, now)
    }

    fn within_cap(&self, lease: Lease, now: BootInstant) -> Option<Lease> {
        match self.cap {
            None => Some(lease),
            Some(cap) if cap <= now => None,
            Some(cap) => Some(lease.limited(cap.since(now))),
        }
    }

    /// The lease to ask for once, no longer than it may last; `None` if it may not any more.
    pub(crate) fn ask_lease(&mut self, lease: Option<Lease>, now: BootInstant) -> Option<Lease> {
        let lease = lease.unwrap_or(self.lease);
        self.longest = self.longest.max(lease);
        self.within_cap(lease, now)
    }

    /// A longer lease was refused.
    pub(crate) fn forget_lease(&mut self) {
        self.longest = self.lease;
    }

    /// For how long servers may have it.
    pub(crate) fn longest_lease(&self) -> Lease {
        self.longest
    }

    /// It was lost for another reason than the one that was seen first.
    pub(crate) fn reason(&mut self, loss: Loss) {
        self.loss = Some(loss);
    }

    /// A server has raised its token.
    pub(crate) fn raise(&mut self, server: usize, raised: Token) {
        if let Share::Held { token, .. } = self.shares.at(server) {
            *token = raised;
        }
    }

    /// It ends by `cap`, if not before.
    pub(crate) fn limit(&mut self, cap: Option<BootInstant>) {
        self.cap = match (self.cap, cap) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        };
        self.count();
    }

    /// When it is to be renewed next, counted from the oldest confirmation that it still needs.
    pub(crate) fn next_renewal(&self) -> BootInstant {
        let believed = self.lease.duration().saturating_sub(self.lease.drift());
        self.deadline.back(believed) + self.lease.renewal_period()
    }

    /// Which servers are asked to renew it, and by which token each has it, as far as is known.
    pub(crate) fn renewals(&self) -> impl Iterator<Item = (usize, Option<Token>)> {
        let shares = self.shares.all().iter().enumerate();
        shares.filter_map(|(server, share)| match *share {
            Share::Held { token, .. } if !self.changing => Some((server, Some(token))),
            Share::Held { .. } | Share::Unknown => Some((server, None)),
            Share::None => None,
        })
    }

    /// Whether a server is known to have it by this token.
    pub(crate) fn has_at(&self, server: usize, token: Option<Token>) -> bool {
        let share = self.shares.all()[server];
        matches!(share, Share::Held { token: known, .. } if Some(known) == token)
    }

    /// A server's answer to a renewal that was sent at `sent`.
    pub(crate) fn on_renewed(
        &mut self,
        server: usize,
        (lease, sent): (Lease, BootInstant),
        answer: Option<Token>,
    ) {
        let share = self.shares.at(server);
        match (answer, *share) {
            (Some(token), Share::Held { until, .. }) => {
                let until = until.max(lease.believed_until(sent));
                *share = Share::Held { token, until };
            }
            (Some(token), Share::Unknown) => {
                let until = lease.believed_until(sent);
                *share = Share::Held { token, until };
            }
            (Some(_), Share::None) => {}
            (None, _) => *share = Share::None,
        }
        self.count();
    }

    /// A server has granted it, or a change of it.
    pub(crate) fn on_granted(&mut self, server: usize, token: Token, since: BootInstant) {
        let until = self.lease.believed_until(since);
        let share = self.shares.at(server);
        let until = match *share {
            Share::Held { until: before, .. } => before.max(until),
            _ => until,
        };
        *share = Share::Held { token, until };
        self.count();
    }

    /// What a server has of it is not known any more.
    pub(crate) fn forget(&mut self, server: usize, share: Share) {
        *self.shares.at(server) = share;
        self.count();
    }

    fn count(&mut self) {
        let majority = self.shares.majority();
        let until = |share: &Share| match *share {
            Share::Held { until, .. } => Some(until),
            _ => None,
        };
        let deadline = match &self.shares {
            Shares::One(one) => until(one),
            Shares::Many(many) => {
                let mut held: Vec<BootInstant> = many.iter().filter_map(until).collect();
                held.sort_unstable_by(|a, b| b.cmp(a));
                held.get(majority - 1).copied()
            }
        };
        // Too few are known to hold it: what was believed stands, unless too many have said no.
        let none = self.shares.all().iter().filter(|it| **it == Share::None);
        if none.count() > self.shares.all().len() - majority {
            self.lose(Loss::Denied);
        }
        let deadline = deadline.unwrap_or(self.deadline);
        self.deadline = self.cap.map_or(deadline, |cap| deadline.min(cap));
    }

    /// After a renewal that was not answered: the next one.
    pub(crate) fn retry_pause(&self) -> Duration {
        const LONGEST: Duration = Duration::from_millis(200);
        (self.lease.duration() / 20).clamp(Duration::from_millis(5), LONGEST)
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

    fn held(until: BootInstant) -> Share {
        let token = Token::new(7);
        Share::Held { token, until }
    }

    fn over(shares: &[Share]) -> Belief {
        Belief::new(Token::new(7), Shares::Many(shares.into()), lease(), None)
    }

    #[test]
    fn a_quorum_is_believed_in_until_it_is_over_on_all_but_a_minority() {
        let now = BootInstant::now();
        let at = |n| held(now + ms(n));
        assert_eq!(over(&[at(300), at(100), at(200)]).deadline(), now + ms(200));
        assert_eq!(
            over(&[at(300), Share::Unknown, at(200)]).deadline(),
            now + ms(200)
        );
        let mut belief = over(&[at(300), at(100), at(200)]);
        belief.on_renewed(1, (lease(), now + ms(50)), Some(Token::new(7)));
        assert_eq!(belief.deadline(), now + ms(300));
        assert_eq!(belief.loss(now + ms(299)), None);
        assert_eq!(belief.loss(now + ms(300)), Some(Loss::Expired));
        belief.on_renewed(0, (lease(), now + ms(299)), Some(Token::new(7)));
        belief.on_renewed(1, (lease(), now + ms(299)), Some(Token::new(7)));
        assert_eq!(
            belief.loss(now + ms(300)),
            Some(Loss::Expired),
            "taken up again"
        );
    }

    #[test]
    fn a_majority_that_denies_is_a_loss_and_a_minority_is_not() {
        let now = BootInstant::now();
        let mut belief = over(&[held(now + ms(100)); 3]);
        belief.on_renewed(0, (lease(), now), None);
        assert_eq!(belief.loss(now), None);
        belief.on_renewed(2, (lease(), now), None);
        assert_eq!(belief.loss(now), Some(Loss::Denied));
        let one = Shares::One(held(now + ms(100)));
        let mut belief = Belief::new(Token::new(7), one, lease(), None);
        belief.on_renewed(0, (lease(), now), None);
        assert_eq!(belief.loss(now), Some(Loss::Denied));
    }

    #[test]
    fn nothing_is_believed_or_renewed_past_the_cap() {
        let now = BootInstant::now();
        let cap = now + ms(50);
        let one = Shares::One(held(now + ms(900)));
        let mut belief = Belief::new(Token::new(7), one, lease(), Some(cap));
        assert_eq!(belief.deadline(), cap);
        assert!(belief.lease_now(now) < Some(lease()));
        assert_eq!(belief.lease_now(cap), None);
        assert_eq!(belief.loss(cap), Some(Loss::HoldLimit));
    }
}
