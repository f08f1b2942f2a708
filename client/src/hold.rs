//! One owner's stake in one lock, as this client believes it to be. Guards share it; renewal keeps it.
//!
//! Belief only ever ends: once a hold has been seen to be over, no late reply brings it back.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::BootInstant;
use crate::core::Core;
use crate::error::Loss;
use crate::lease::Lease;
use crate::link::Link;
use crate::mode::Mode;
use crate::owner::Slot;
use crate::renew;
use crate::sync::lock;
use crate::token::Token;

/// A hold, from its grant to its release or loss.
pub(crate) struct Hold {
    pub(crate) core: Arc<Core>,
    pub(crate) key: Arc<[u8]>,
    pub(crate) owner: Arc<[u8]>,
    /// Locked while a request that changes counts is on its way, so that `HOLDS n` means what it says.
    pub(crate) slot: Slot,
    state: Mutex<State>,
    over: watch::Sender<Option<Loss>>,
}

/// What is believed.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) token: Token,
    /// When that token came to be.
    pub(crate) settled: BootInstant,
    /// What each server knows the hold by; `None` where that is unknown.
    pub(crate) nodes: Vec<Option<Token>>,
    /// Connections on which an acquire has not been answered: what is released there has to go behind it.
    pub(crate) unanswered: Vec<Option<Link>>,
    pub(crate) write: u32,
    pub(crate) read: u32,
    /// How many guards have been given back that are still counted.
    pub(crate) leaving: u32,
    pub(crate) lease: Lease,
    pub(crate) deadline: BootInstant,
    /// When the longest lease is over that was asked for, confirmed or not.
    pub(crate) leased_until: BootInstant,
    /// When the hold has to end, however often it is renewed.
    pub(crate) cap: Option<BootInstant>,
    /// How many reasons there are to renew in the background.
    pub(crate) renewing: u32,
    pub(crate) next_renewal: BootInstant,
    /// A renewal in the background is on its way.
    pub(crate) in_renewal: bool,
    /// A request to change it is on its way: what a renewal says of its token may be old by then.
    pub(crate) suspended: bool,
    /// Only the newest entry on the agenda of renewals counts.
    pub(crate) agenda: u64,
    /// Changes with everything that makes an answer on its way meaningless.
    pub(crate) epoch: u64,
    pub(crate) loss: Option<Loss>,
}

/// A grant as it came from the servers.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) owner: Arc<[u8]>,
    pub(crate) token: Token,
    pub(crate) nodes: Vec<Option<Token>>,
    pub(crate) unanswered: Vec<Option<Link>>,
    /// When the earliest request was sent that has not been renewed since.
    pub(crate) sent: BootInstant,
}

impl State {
    pub(crate) fn count(&self, mode: Mode) -> u32 {
        match mode {
            Mode::Write => self.write,
            Mode::Read => self.read,
        }
    }

    pub(crate) fn set_count(&mut self, mode: Mode, count: u32) {
        match mode {
            Mode::Write => self.write = count,
            Mode::Read => self.read = count,
        }
    }

    /// Whether its last guard has been given back, though its release is still to come.
    pub(crate) fn is_given_back(&self) -> bool {
        self.leaving >= self.write.saturating_add(self.read)
    }

    /// Whether nothing of it is left to be released.
    pub(crate) fn is_released(&self) -> bool {
        self.write == 0 && self.read == 0
    }

    /// A lease has been asked for.
    pub(crate) fn note_lease(&mut self, lease: Lease) {
        let until = BootInstant::now() + lease.duration();
        self.leased_until = self.leased_until.max(until);
    }

    /// Whether it is to be renewed in the background, when it is time, and is not being renewed already.
    pub(crate) fn wants_renewal(&self) -> bool {
        self.renewing > 0 && !self.in_renewal
    }

    /// Whether it is believed in until its cap, as closely as clocks can tell.
    pub(crate) fn reaches_cap(&self) -> bool {
        self.cap
            .is_some_and(|cap| self.deadline + self.lease.drift() >= cap)
    }

    fn believed_until(&self, lease: Lease, sent: BootInstant) -> BootInstant {
        let until = lease.believed_until(sent);
        self.cap.map_or(until, |cap| until.min(cap))
    }
}

/// What a hold starts with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) mode: Mode,
    pub(crate) lease: Lease,
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Duration>,
}

impl Terms {
    /// The lease to ask a server for: no longer than the hold may last, or it would go on after a holder that died.
    pub(crate) fn asked_lease(&self) -> Lease {
        self.max_hold
            .map_or(self.lease, |max| self.lease.limited(max))
    }
}

impl Hold {
    pub(crate) fn new(
        core: Arc<Core>,
        (key, owner): (Arc<[u8]>, Arc<[u8]>),
        slot: Slot,
        terms: &Terms,
        grant: Grant,
    ) -> Hold {
        let mut state = State {
            token: grant.token,
            settled: BootInstant::now(),
            nodes: grant.nodes,
            unanswered: grant.unanswered,
            write: 0,
            read: 0,
            leaving: 0,
            lease: terms.lease,
            deadline: grant.sent,
            leased_until: BootInstant::now() + terms.lease.duration(),
            cap: terms.max_hold.map(|max| grant.sent + max),
            renewing: u32::from(terms.renew),
            next_renewal: grant.sent + terms.lease.renewal_period(),
            in_renewal: false,
            suspended: false,
            agenda: 0,
            epoch: 0,
            loss: None,
        };
        state.deadline = state.believed_until(terms.lease, grant.sent);
        state.set_count(terms.mode, 1);
        Hold {
            core,
            key,
            owner,
            slot,
            state: Mutex::new(state),
            over: watch::channel(None).0,
        }
    }

    pub(crate) fn who(&self) -> (&[u8], &[u8]) {
        (&self.key, &self.owner)
    }

    /// What is believed now; that the deadline has passed is taken note of first.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        if state.loss.is_none() && BootInstant::now() >= state.deadline {
            let loss = if state.reaches_cap() {
                Loss::HoldLimit
            } else {
                Loss::Expired
            };
            self.end(&mut state, loss);
        }
        state
    }

    /// Why it is over, or `None` while it may be believed in.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.state().loss
    }

    /// Ends the belief. The first reason stays.
    pub(crate) fn lose(&self, loss: Loss) {
        let mut state = self.state();
        if state.loss.is_none() {
            self.end(&mut state, loss);
        }
    }

    fn end(&self, state: &mut State, loss: Loss) {
        state.loss = Some(loss);
        self.over.send_replace(Some(loss));
        crate::trace::over(&self.key, state.token, loss);
    }

    /// Becomes ready when it is over; by itself at the deadline only because renewal watches that.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Loss>> {
        self.over.subscribe()
    }

    /// A renewal, sent at `sent`, was confirmed: believes in it until the lease it asked for is over.
    pub(crate) fn extend(&self, sent: BootInstant, lease: Lease) {
        let mut state = self.state();
        if state.loss.is_none() {
            state.deadline = state.deadline.max(state.believed_until(lease, sent));
            state.next_renewal = sent + lease.renewal_period();
        }
    }

    /// A renewal got no answer: it is tried again soon, but for ever less often than the server can bear.
    pub(crate) fn retry_renewal(&self) {
        let mut state = self.state();
        let pause = (state.lease.duration() / 20).min(Duration::from_millis(500));
        state.next_renewal = BootInstant::now() + pause;
    }

    /// One more guard on the same hold, or the other mode of it.
    pub(crate) fn join(&self, terms: &Terms, count: u32, grant: Grant) {
        let mut state = self.state();
        state.set_count(terms.mode, count);
        state.suspended = false;
        state.epoch += 1;
        if state.token != grant.token {
            state.token = grant.token;
            state.settled = BootInstant::now();
        }
        state.nodes = grant.nodes;
        state.unanswered = grant.unanswered;
        // One less: the request that is now granted had the hold renewed while it waited.
        state.renewing = (state.renewing + u32::from(terms.renew)).saturating_sub(1);
        state.lease = state.lease.max(terms.lease);
        if let Some(max) = terms.max_hold {
            let cap = grant.sent + max;
            state.cap = Some(state.cap.map_or(cap, |old| old.min(cap)));
        }
        if state.loss.is_none() {
            let until = state.believed_until(terms.lease, grant.sent);
            let until = state.deadline.max(until);
            // The cap may be a new one, and earlier than what was believed until now.
            state.deadline = state.cap.map_or(until, |cap| until.min(cap));
        }
    }

    /// Another request for the hold is about to be sent: until it is settled, nobody knows what the servers know the
    /// hold by. It is renewed meanwhile, whatever it started with. Returns what they knew it by.
    pub(crate) fn suspend_tokens(&self) -> Vec<Option<Token>> {
        let mut state = self.state();
        state.epoch += 1;
        state.suspended = true;
        state.renewing += 1;
        let tokens = state.nodes.clone();
        state.nodes.fill(None);
        tokens
    }

    /// The request has come to nothing: `clean` if the servers have said so, and know the hold as they did.
    pub(crate) async fn resume_tokens(self: Arc<Self>, tokens: Vec<Option<Token>>, clean: bool) {
        let stale = {
            let mut state = self.state();
            state.epoch += 1;
            state.suspended = false;
            state.renewing = state.renewing.saturating_sub(1);
            if clean {
                state.nodes = tokens;
            }
            !clean && state.loss.is_none()
        };
        if stale && let Some(request) = renew::request(&self) {
            renew::renew(&self.core, vec![request]).await;
        }
    }

    /// A lease was asked for and refused everywhere; a longer one asked for since counts.
    pub(crate) fn forget_lease(&self, (before, asked): (BootInstant, BootInstant)) {
        let mut state = self.state();
        if state.leased_until == asked {
            state.leased_until = before;
        }
    }

    /// Takes note of the token by which a server knows the hold.
    pub(crate) fn learn(&self, node: usize, token: Token, epoch: u64) {
        let mut state = self.state();
        // What is late may change it yet. Over a quorum that is one server of several, and not to be left out for it.
        let is_late = !self.core.is_quorum() && state.unanswered[node].is_some();
        let is_sure = !state.suspended && !is_late;
        if state.epoch == epoch && is_sure && state.nodes[node].is_none() {
            state.nodes[node] = Some(token);
            if state.nodes.len() == 1 {
                state.token = state.token.max(token);
            }
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("key", &String::from_utf8_lossy(&self.key))
            .field("owner", &String::from_utf8_lossy(&self.owner))
            .field("state", &*self.state())
            .finish_non_exhaustive()
    }
}
