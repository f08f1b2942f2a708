//! What may be believed of a hold: on which servers it is, by which tokens, and until when.
//!
//! On one server it is believed in until the last confirmed request was sent, plus the lease, less the drift; over a quorum
//! until so much is over on all but a minority. A belief that has run out is never taken up again.

use std::time::Duration;

use crate::proto::{Round, Vote};
use crate::value::{BootInstant, Error, Lease, Loss, Token};

/// A hold, as far as it may be believed in.
#[derive(Debug, Clone)]
pub(crate) struct Belief {
    pub(crate) token: Token,
    /// What each server has said last: those that have not met the token are there, too, for all that is known.
    pub(crate) round: Round,
    lease: Lease,
    /// The longest lease that was asked for, and not refused: for how long servers may have it.
    pub(crate) longest: Lease,
    /// When it ends however often it is renewed.
    cap: Option<BootInstant>,
    /// A change of it is on its way: nobody knows by which token the servers have it.
    pub(crate) changing: bool,
    deadline: BootInstant,
    loss: Option<Loss>,
}

impl Belief {
    pub(crate) fn new(
        token: Token,
        round: Round,
        lease: Lease,
        cap: Option<BootInstant>,
    ) -> Belief {
        let mut belief = Belief {
            token,
            round,
            lease,
            longest: lease,
            cap,
            changing: false,
            deadline: BootInstant::default(),
            loss: None,
        };
        belief.count(Loss::Denied);
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

    /// An error once it is lost.
    pub(crate) fn check(&mut self, now: BootInstant) -> Result<(), Error> {
        self.loss(now).map_or(Ok(()), |loss| Err(Error::Lost(loss)))
    }

    /// It is over; the first reason stays.
    pub(crate) fn lose(&mut self, loss: Loss) {
        self.loss.get_or_insert(loss);
    }

    /// The lease to ask for, its own or another, no longer than it may last.
    pub(crate) fn ask_lease(
        &mut self,
        lease: Option<Lease>,
        now: BootInstant,
    ) -> Result<Lease, Error> {
        self.check(now)?;
        let lease = lease.unwrap_or(self.lease);
        self.longest = self.longest.max(lease);
        Ok(self.cap.map_or(lease, |cap| lease.limited(cap.since(now))))
    }

    /// A longer lease was refused.
    pub(crate) fn forget_lease(&mut self) {
        self.longest = self.lease;
    }

    /// It ends by `cap`, if not before.
    pub(crate) fn limit(&mut self, cap: Option<BootInstant>) {
        self.cap = self.cap.into_iter().chain(cap).min();
        self.count(Loss::Denied);
    }

    /// When the oldest confirmation was asked for that it still needs.
    pub(crate) fn confirmed(&self) -> BootInstant {
        let believed = self.lease.duration().saturating_sub(self.lease.drift());
        self.round.until().unwrap_or_default().back(believed)
    }

    pub(crate) fn next_renewal(&self) -> BootInstant {
        self.confirmed() + self.lease.renewal_period()
    }

    /// After a renewal that was not answered: the next one.
    pub(crate) fn retry_pause(&self) -> Duration {
        const LONGEST: Duration = Duration::from_millis(200);
        (self.lease.duration() / 20).clamp(Duration::from_millis(5), LONGEST)
    }

    /// What to ask of which servers, to renew it; by the token that they have it by, if that is known.
    pub(crate) fn renewals(&self) -> impl Iterator<Item = (usize, Option<Token>)> {
        self.round.there().map(|(server, _)| {
            let held = self.round[server].held().filter(|_| !self.changing);
            (server, held.map(|held| held.token))
        })
    }

    /// The token that a server has it by, for all that is known.
    pub(crate) fn token_at(&self, server: usize) -> Token {
        self.round[server].held().map_or(self.token, |it| it.token)
    }

    /// A server's answer to a renewal that was asked by a token, or by none.
    pub(crate) fn on_renewed(&mut self, server: usize, asked: Option<Token>, vote: &Vote) {
        let token = self.round[server].held().map(|held| held.token);
        // By one which a change has replaced meanwhile: that it is not there says nothing.
        let is_stale = asked.is_some() && (self.changing || token != asked);
        match vote {
            Vote::Held(_) => self.set(server, vote.clone(), Loss::Denied),
            Vote::Busy if !is_stale => self.set(server, Vote::Busy, Loss::Denied),
            _ => {}
        }
    }

    /// What a server has of it now. Where too few are known to have it, the others may be another's: it is lost for that
    /// reason.
    pub(crate) fn set(&mut self, server: usize, vote: Vote, reason: Loss) {
        self.record((server, vote), false, reason);
    }

    /// What a server says late to the request that it was taken by.
    pub(crate) fn learn(&mut self, server: usize, vote: Vote) {
        self.record((server, vote), true, Loss::Denied);
    }

    fn record(&mut self, (server, vote): (usize, Vote), is_own: bool, reason: Loss) {
        if self.loss.is_none() {
            self.round.record(server, vote, is_own);
            self.count(reason);
        }
    }

    fn count(&mut self, reason: Loss) {
        match self.round.until() {
            Some(until) => self.deadline = self.cap.map_or(until, |cap| until.min(cap)),
            None => self.lose(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::round::Held;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn lease() -> Lease {
        Lease::new(ms(1000)).unwrap()
    }

    fn held(until: BootInstant) -> Vote {
        Vote::Held(Held {
            token: Token::new(7),
            made: BootInstant::default(),
            until,
            late: false,
        })
    }

    fn over(votes: &[Vote]) -> Belief {
        capped(votes, None)
    }

    fn capped(votes: &[Vote], cap: Option<BootInstant>) -> Belief {
        let mut round = Round::new(votes.len());
        round.clone_from_slice(votes);
        Belief::new(Token::new(7), round, lease(), cap)
    }

    fn renew(belief: &mut Belief, server: usize, sent: BootInstant, answer: Option<Token>) {
        let granted = |token| Vote::granted(token, (sent, lease().believed_until(sent)));
        let vote = answer.map_or(Vote::Busy, granted);
        belief.on_renewed(server, Some(Token::new(7)), &vote);
    }

    #[test]
    fn a_quorum_is_believed_in_until_it_is_over_on_all_but_a_minority() {
        let now = BootInstant::now();
        let at = |n| held(now + ms(n));
        assert_eq!(over(&[at(300), at(100), at(200)]).deadline(), now + ms(200));
        assert_eq!(
            over(&[at(300), Vote::Unknown(Error::Closed), at(200)]).deadline(),
            now + ms(200)
        );
        let mut belief = over(&[at(300), at(100), at(200)]);
        renew(&mut belief, 1, now + ms(50), Some(Token::new(7)));
        assert_eq!(belief.deadline(), now + ms(300));
        assert_eq!(belief.loss(now + ms(299)), None);
        assert_eq!(belief.loss(now + ms(300)), Some(Loss::Expired));
        renew(&mut belief, 0, now + ms(299), Some(Token::new(7)));
        renew(&mut belief, 1, now + ms(299), Some(Token::new(7)));
        assert_eq!(
            belief.loss(now + ms(300)),
            Some(Loss::Expired),
            "taken up again"
        );
    }

    #[test]
    fn a_majority_that_denies_is_a_loss_and_a_minority_is_not() {
        let now = BootInstant::now();
        let mut belief = over(&[now; 3].map(|now| held(now + ms(100))));
        renew(&mut belief, 0, now, None);
        assert_eq!(belief.loss(now), None);
        renew(&mut belief, 2, now, None);
        assert_eq!(belief.loss(now), Some(Loss::Denied));
        let mut belief = over(&[held(now + ms(100))]);
        renew(&mut belief, 0, now, None);
        assert_eq!(belief.loss(now), Some(Loss::Denied));
    }

    #[test]
    fn a_server_that_did_not_answer_does_not_stand_in_for_one_that_has_it_no_more() {
        let now = BootInstant::now();
        let (there, open) = (held(now + ms(100)), Vote::Unknown(Error::Closed));
        let mut belief = over(&[there.clone(), open, there]);
        let may_come_late = |belief: &Belief| belief.round[1].may_be_there() == Some(true);
        belief.on_renewed(1, None, &Vote::Busy);
        assert!(may_come_late(&belief), "its request may arrive yet");
        belief.on_renewed(1, None, &held(now + ms(100)));
        assert!(may_come_late(&belief), "its request may arrive once more");
        belief.set(1, Vote::Unknown(Error::Closed), Loss::Denied);
        assert_eq!(belief.loss(now), None);
        belief.set(2, Vote::Unasked, Loss::Unknown);
        assert_eq!(belief.loss(now), Some(Loss::Unknown));
    }

    #[test]
    fn nothing_is_believed_or_renewed_past_the_cap() {
        let now = BootInstant::now();
        let cap = now + ms(50);
        let mut belief = capped(&[held(now + ms(900))], Some(cap));
        assert_eq!(belief.deadline(), cap);
        assert!(belief.ask_lease(None, now).unwrap() < lease());
        assert!(belief.ask_lease(None, cap).is_err());
        assert_eq!(belief.loss(cap), Some(Loss::HoldLimit));
    }
}
