//! A hold over a quorum: several holds, one for each server that has it, and a count of them.

use std::any::Any;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, ready, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use tokio::sync::Notify;

use crate::lock::hold::Lost;
use crate::lock::{Hold, ServerHold, Share, Shares, Terms, Watchers, trace};
use crate::net::task;
use crate::quorum::released::count_released;
use crate::quorum::votes::{believed_until, weight};
use crate::quorum::{Member, Servers};
use crate::value::{BootInstant, Error, Lease, Loss, Mode, NodeReason, Token, lock};
use crate::wire::Name;

/// Why a hold over several servers is not changed.
pub(super) const ONE_SERVER_ONLY: &str = "servers could be left with different modes or holders if some did not answer: release, and acquire anew";

pub(crate) struct QuorumHold {
    servers: Arc<Servers>,
    name: Name,
    mode: Mode,
    token: Token,
    at_least: Duration,
    /// Never locked while a member is asked: that may find a loss, and report it here.
    state: Mutex<State>,
    /// A server has answered that had not when the lock was won.
    answered_late: Notify,
}

struct State {
    /// The servers that have it; once it is lost, those that keep it for as long as a guard may rely on its deadline.
    members: Vec<Member>,
    /// How many servers have not answered yet.
    late: usize,
    shares: Shares,
    is_renewed: bool,
    watchers: Watchers,
    /// Why it is over, and the last deadline.
    ended: Option<(Loss, BootInstant)>,
}

impl QuorumHold {
    /// One that was won on the servers of these members, and no guard shares yet.
    pub(super) fn new(
        servers: Arc<Servers>,
        name: Name,
        mode: Mode,
        token: Token,
        terms: &Terms,
        members: Vec<Member>,
    ) -> Arc<QuorumHold> {
        let holds: Vec<_> = members.iter().map(|it| it.hold.clone()).collect();
        let hold = Arc::new(QuorumHold {
            servers,
            name,
            mode,
            token,
            at_least: terms.at_least,
            state: Mutex::new(State {
                members,
                late: 0,
                shares: Shares::default(),
                is_renewed: terms.renews,
                watchers: Watchers::default(),
                ended: None,
            }),
            answered_late: Notify::new(),
        });
        for member in &holds {
            hold.attach(member, terms.renews);
        }
        hold
    }

    /// One more server has it. If it is over, the server's part is given back.
    pub(super) fn join(self: &Arc<Self>, member: Member) {
        let hold = member.hold.clone();
        let _ = self.settle();
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            drop(state);
            return drop(member);
        }
        state.members.push(member);
        // From here on it is renewed or not as the others are.
        let is_renewed = state.is_renewed;
        drop(state);
        self.attach(&hold, is_renewed);
    }

    /// Has a member do what the hold is to do, and reports its loss here.
    fn attach(self: &Arc<Self>, member: &Arc<ServerHold>, is_renewed: bool) {
        member.keep_for(self.at_least);
        if !is_renewed {
            member.want_renewal(false);
        }
        let is_lost = member.watch(&mut None, &Waker::from(self.clone()));
        if is_lost.is_err() {
            let _ = self.settle();
        }
    }

    /// So many servers have not answered yet.
    pub(super) fn set_late(&self, late: usize) {
        lock(&self.state).late = late;
        self.answered_late.notify_waiters();
    }

    pub(super) fn lost(self: Arc<Self>) -> Lost {
        Lost::of(self)
    }

    fn members(&self) -> Vec<Arc<ServerHold>> {
        let state = lock(&self.state);
        state.members.iter().map(|it| it.hold.clone()).collect()
    }

    /// Until when it may be believed in: by the servers that have it, or by all that have had it.
    fn until(&self, members: &[Arc<ServerHold>]) -> Option<BootInstant> {
        believed_until(
            members.iter().map(|it| it.deadline()),
            self.servers.all.len(),
        )
    }

    /// Counts the servers that have it. Once they are fewer than a majority, it is over for good.
    fn settle(&self) -> Result<BootInstant, (Loss, BootInstant)> {
        if let Some(ended) = lock(&self.state).ended {
            return Err(ended);
        }
        let members = self.members();
        let losses: Vec<Option<Loss>> = members.iter().map(|it| it.loss()).collect();
        let held = members.iter().zip(&losses);
        let held = held.filter(|(_, loss)| loss.is_none());
        let held: Vec<_> = held.map(|(member, _)| member.clone()).collect();
        match self.until(&held) {
            Some(until) => Ok(until),
            None => {
                let deadline = self.until(&members).unwrap_or_default();
                let loss = losses.into_iter().flatten().max_by_key(weight);
                Err(self.end(loss.unwrap_or(Loss::Expired), deadline))
            }
        }
    }

    /// It is lost. Servers that keep it for a guard are renewed no more.
    fn end(&self, loss: Loss, deadline: BootInstant) -> (Loss, BootInstant) {
        drop(self.finish(loss, deadline));
        for kept in self.members() {
            kept.limit(deadline.min(kept.deadline()));
        }
        lock(&self.state).ended.unwrap_or((loss, deadline))
    }

    /// Ends the hold. Returns the members to release now, or `None` if it had ended before. While a guard shows a later deadline, it
    /// keeps them: one server may have lost its data, and the others would grant the lock to another client.
    fn finish(&self, loss: Loss, deadline: BootInstant) -> Option<Vec<Member>> {
        let mut state = lock(&self.state);
        if state.ended.is_some() {
            return None;
        }
        state.ended = Some((loss, deadline));
        let members = match state.shares.guards > 0 && BootInstant::now() < deadline {
            true => Vec::new(),
            false => mem::take(&mut state.members),
        };
        let watchers = state.watchers.take();
        drop(state);
        trace::ended(&self.name.key, self.token, loss);
        watchers.for_each(Waker::wake);
        Some(members)
    }

    fn is_over(&self) -> Option<Loss> {
        self.settle().err().map(|ended| ended.0)
    }

    /// Gives it back on all servers.
    fn release(&self) -> BoxFuture<'static, Result<(), Error>> {
        let released = match self.settle() {
            Ok(deadline) => self.finish(Loss::Released, deadline),
            Err(_) => None,
        };
        let Some(members) = released else {
            // Not under the lock: each reports its end here.
            let kept = mem::take(&mut lock(&self.state).members);
            drop(kept);
            let loss = self.is_over().unwrap_or(Loss::Released);
            return ready(Err(Error::Lost(loss))).boxed();
        };
        let releasing = members.into_iter().map(|member| {
            let server = self.number_of(&member.hold);
            let releasing = member.guard.release();
            releasing.map(move |released| (server, released)).boxed()
        });
        count_released(self.servers.clone(), releasing.collect()).boxed()
    }

    /// The number of a member's server.
    fn number_of(&self, member: &ServerHold) -> usize {
        let mut servers = self.servers.all.iter();
        let number = servers.position(|core| Arc::ptr_eq(core, &member.core));
        number.expect("a member is of one of the servers")
    }

    /// What a renewal's error is, by what is known since.
    fn explain(&self, error: Error) -> Error {
        match self.is_over() {
            None => error,
            Some(Loss::Denied) => Error::NotHeld,
            Some(loss) => Error::Lost(loss),
        }
    }

    async fn renew_on_majority(&self, lease: Option<Lease>) -> Result<(), Error> {
        if let Some(loss) = self.is_over() {
            return Err(Error::Lost(loss));
        }
        let mut renewing = FuturesUnordered::<BoxFuture<'static, Renewed>>::new();
        let (mut asked, mut confirmed, mut reasons) = (Vec::new(), 0, Vec::new());
        while confirmed < self.servers.majority() {
            let answered_late = self.answered_late.notified();
            for member in self.members() {
                let server = self.number_of(&member);
                if !asked.contains(&server) {
                    asked.push(server);
                    renewing.push(renew(server, member, lease).boxed());
                }
            }
            let is_last = lock(&self.state).late == 0;
            if renewing.is_empty() && is_last {
                return Err(self.explain(self.servers.no_quorum(confirmed, reasons)));
            }
            let next = async {
                match renewing.next().await {
                    Some(renewed) => renewed,
                    None => std::future::pending().await,
                }
            };
            if let Either::Left((renewed, _)) = select(pin!(next), pin!(answered_late)).await {
                match renewed.result {
                    Ok(()) => confirmed += 1,
                    Err(Error::NotHeld | Error::Lost(_)) => {
                        reasons.push((renewed.server, NodeReason::Busy));
                    }
                    Err(error) => reasons.push((renewed.server, NodeReason::of(error))),
                }
            }
            if let Some(loss) = self.is_over() {
                return Err(self.explain(Error::Lost(loss)));
            }
        }
        if !renewing.is_empty() {
            // The others last as long, if they answer.
            let rest = async move { while renewing.next().await.is_some() {} };
            task::spawn(&self.servers.all[0].runtime, rest);
        }
        Ok(())
    }

    fn set_renewed(&self, is_renewed: bool) {
        let mut state = lock(&self.state);
        if mem::replace(&mut state.is_renewed, is_renewed) == is_renewed {
            return;
        }
        drop(state);
        for member in self.members() {
            member.want_renewal(is_renewed);
        }
    }

    /// Has it renewed while somebody wants that.
    fn share_out(&self, change: impl FnOnce(&mut Shares)) {
        let is_wanted = {
            let mut state = lock(&self.state);
            change(&mut state.shares);
            state.shares.renewing > 0
        };
        self.set_renewed(is_wanted);
    }
}

/// What a server said to a renewal.
struct Renewed {
    server: usize,
    result: Result<(), Error>,
}

async fn renew(server: usize, hold: Arc<ServerHold>, lease: Option<Lease>) -> Renewed {
    let result = hold.renew(lease).await;
    Renewed { server, result }
}

impl Wake for QuorumHold {
    /// A server's part is lost.
    fn wake(self: Arc<Self>) {
        let _ = self.settle();
    }
}

impl Hold for QuorumHold {
    fn name(&self) -> &Name {
        &self.name
    }

    fn mode(&self) -> Mode {
        self.mode
    }

    fn token(&self) -> Token {
        self.token
    }

    fn deadline(&self) -> BootInstant {
        match self.settle() {
            Ok(deadline) | Err((_, deadline)) => deadline,
        }
    }

    fn loss(&self) -> Option<Loss> {
        self.is_over()
    }

    fn share(&self, share: Share, cap: Option<BootInstant>) -> Result<(), Error> {
        if let Some(loss) = self.is_over() {
            return Err(Error::Lost(loss));
        }
        if let Some(cap) = cap {
            for member in self.members() {
                member.limit(cap);
            }
        }
        self.share_out(|shares| shares.add(share));
        Ok(())
    }

    fn unshare(self: Arc<Self>, share: Share) -> BoxFuture<'static, Result<(), Error>> {
        let is_last = {
            let mut state = lock(&self.state);
            state.shares.remove(share);
            state.shares.guards == 0
        };
        if is_last {
            return self.release();
        }
        self.share_out(|_| {});
        let loss = self.is_over();
        ready(loss.map_or(Ok(()), |loss| Err(Error::Lost(loss)))).boxed()
    }

    fn renew(&self, lease: Option<Lease>) -> BoxFuture<'_, Result<(), Error>> {
        self.renew_on_majority(lease).boxed()
    }

    fn watch(&self, id: &mut Option<u64>, waker: &Waker) -> Result<BootInstant, Loss> {
        let deadline = self.settle().map_err(|ended| ended.0)?;
        let mut state = lock(&self.state);
        if let Some((loss, _)) = state.ended {
            return Err(loss);
        }
        state.watchers.add(id, waker);
        Ok(deadline)
    }

    fn unwatch(&self, id: u64) {
        let waker = lock(&self.state).watchers.remove(id);
        drop(waker);
    }

    fn answer_limit(&self) -> Duration {
        self.servers.timeouts.answer
    }

    fn on_one_server(self: Arc<Self>) -> Result<Arc<dyn Any + Send + Sync>, Error> {
        Err(Error::NotOverQuorum(ONE_SERVER_ONLY))
    }
}
