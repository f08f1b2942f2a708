//! What goes on without a caller: holds are renewed and found lost when they are due, names are left until the server has
//! said so, and pauses end. One task for each client, on its runtime; there while there is something to do.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Sleep;

use crate::net::Pending;
use crate::net::peer::Route;
use crate::net::server::Server;
use crate::proto::agenda::{Agenda, Slot};
use crate::proto::command::Command;
use crate::proto::reply::{Answer, Reply, checked, token};
use crate::run::trace;
use crate::value::clock::{BootInstant, LOOK};
use crate::value::error::Error;
use crate::value::lease::Lease;
use crate::value::sync::lock;
use crate::value::token::Token;

/// A hold, as far as upkeep goes.
pub(crate) trait Kept: Send + Sync {
    /// It is due: which renewals are to be sent, if any, and when to look again; `None` once it is over.
    fn look(&self, now: BootInstant) -> Option<(Vec<Renewal>, BootInstant)>;
    /// The answer to a renewal.
    fn on_renewed(&self, renewal: &Renewal, answer: Result<Option<Token>, Error>);
    /// Where it stands in the agenda now.
    fn moved(&self, slot: Slot);
    fn who(&self) -> (&[u8], &[u8]);
    fn server(&self, number: usize) -> &Arc<Server>;
    /// Whoever has it gives it back.
    fn close(&self);
}

/// A renewal to be sent to one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal {
    pub(crate) server: usize,
    pub(crate) lease: Lease,
    pub(crate) token: Option<Token>,
    pub(crate) sent: BootInstant,
}

/// A name to be left at a server.
#[derive(Debug)]
pub(crate) struct Leave {
    pub(crate) server: Arc<Server>,
    key: Arc<[u8]>,
    owner: Arc<[u8]>,
    /// Something of it may arrive yet.
    pub(crate) late: bool,
    /// When its lease has ended whatever is said.
    until: BootInstant,
    /// A release of it that is on its way, which will do if it is answered.
    pub(crate) said: Option<(Route, Pending)>,
    /// After a failure.
    pause: Duration,
}

#[derive(Default)]
pub(crate) struct Upkeep(Mutex<State>);

#[derive(Default)]
struct State {
    agenda: Agenda<Due>,
    leaves: Vec<Leave>,
    /// Those that have failed and are due again are counted, too.
    unsaid: usize,
    closing: Vec<Waker>,
    task: Option<Waker>,
    /// When the task looks by itself.
    wakes: Option<BootInstant>,
    is_running: bool,
    is_dropped: bool,
    is_gone: bool,
}

enum Due {
    Hold(Arc<dyn Kept>),
    Sleeper(Waker),
    Leave(Leave),
}

const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// No connection is given up for less, however short a lease is.
const SHORTEST_LIMIT: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

impl Upkeep {
    /// Has a hold looked at.
    pub(crate) fn keep(self: &Arc<Self>, hold: Arc<dyn Kept>, due: BootInstant, on: &Handle) {
        let mut state = lock(&self.0);
        let slot = state.agenda.add(due, Due::Hold(hold.clone()));
        hold.moved(slot);
        self.begin(state, Some(due), on);
    }

    /// Has a hold that is kept looked at by `due`.
    pub(crate) fn hasten(self: &Arc<Self>, slot: Slot, due: BootInstant, on: &Handle) {
        let mut state = lock(&self.0);
        if let Some(Due::Hold(hold)) = state.agenda.remove(slot) {
            let slot = state.agenda.add(due, Due::Hold(hold.clone()));
            hold.moved(slot);
            self.begin(state, Some(due), on);
        }
    }

    /// The hold in this place is over.
    pub(crate) fn forget(&self, slot: Slot) {
        let gone = lock(&self.0).agenda.remove(slot);
        drop(gone);
    }

    /// Sends what leaves a name, now, and again until it is answered.
    pub(crate) fn leave(self: &Arc<Self>, mut leave: Leave, on: &Handle) {
        if leave.said.is_none() {
            leave.say();
        }
        let mut state = lock(&self.0);
        state.leaves.push(leave);
        state.unsaid += 1;
        self.begin(state, None, on);
    }

    /// Resolves after a pause; never where the runtime is gone, but then nobody is asked either.
    pub(crate) async fn sleep(self: &Arc<Self>, pause: Duration, on: &Handle) {
        let until = BootInstant::now() + pause;
        poll_fn(|context| {
            let mut state = lock(&self.0);
            if BootInstant::now() >= until || state.is_gone {
                return Poll::Ready(());
            }
            let waker = Due::Sleeper(context.waker().clone());
            state.agenda.add(until, waker);
            self.begin(state, Some(until), on);
            Poll::Pending
        })
        .await;
    }

    /// Resolves when everything that was to be said is said, or has been given up.
    pub(crate) async fn said(&self) {
        poll_fn(|context| {
            let mut state = lock(&self.0);
            if state.unsaid == 0 || state.is_gone {
                return Poll::Ready(());
            }
            state.closing.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// The holds that are there now.
    pub(crate) fn holds(&self) -> Vec<Arc<dyn Kept>> {
        let state = lock(&self.0);
        let holds = state.agenda.values().filter_map(|due| match due {
            Due::Hold(hold) => Some(hold.clone()),
            _ => None,
        });
        holds.collect()
    }

    /// The client is gone: the task ends when everything is said.
    pub(crate) fn client_dropped(&self) {
        let mut state = lock(&self.0);
        state.is_dropped = true;
        wake(state);
    }

    /// Has the task look, at `due` or now.
    fn begin(
        self: &Arc<Self>,
        mut state: std::sync::MutexGuard<'_, State>,
        due: Option<BootInstant>,
        on: &Handle,
    ) {
        if state.is_gone {
            return;
        }
        if !std::mem::replace(&mut state.is_running, true) {
            drop(state);
            on.spawn(run(End(self.clone())));
            return;
        }
        let looks_then = matches!((state.wakes, due), (Some(wakes), Some(due)) if wakes <= due);
        if !looks_then {
            wake(state);
        }
    }
}

fn wake(mut state: std::sync::MutexGuard<'_, State>) {
    let task = state.task.take();
    drop(state);
    if let Some(task) = task {
        task.wake();
    }
}

impl Leave {
    /// To be said for as long as a lease may last.
    pub(crate) fn new(
        server: Arc<Server>,
        (key, owner): (Arc<[u8]>, Arc<[u8]>),
        lease: Duration,
        late: bool,
    ) -> Leave {
        Leave {
            server,
            key,
            owner,
            late,
            until: BootInstant::now() + lease,
            said: None,
            pause: FIRST_PAUSE,
        }
    }

    /// Sends the first word: a release will do for a hold that is there, for all that is known.
    pub(crate) fn release(mut self) -> Leave {
        if self.late {
            self.say();
            return self;
        }
        let route = self.server.route(&self.key);
        let who = (&*self.key, &*self.owner);
        let command = Command::Release { who, token: None };
        let pending = route.send(&command, BootInstant::now());
        self.said = Some((route, pending));
        self
    }

    pub(crate) fn say(&mut self) {
        let route = self.server.route(&self.key);
        let pending = self.send(&route);
        self.said = Some((route, pending));
    }

    fn send(&self, route: &Route) -> Pending {
        let who = (&*self.key, &*self.owner);
        let late = self.late;
        route.send(&Command::Leave { who, late }, BootInstant::now())
    }

    /// The answer, once it is there; an error is why it is to be said again.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Reply, Error>> {
        loop {
            let Some((route, pending)) = &mut self.said else {
                return Poll::Ready(Err(Error::Closed));
            };
            let Poll::Ready(answer) = pending.poll_take(context) else {
                return Poll::Pending;
            };
            if let Some(route) = self.server.redirected(route, &answer) {
                let pending = self.send(&route);
                self.said = Some((route, pending));
                continue;
            }
            return Poll::Ready(checked(answer, &self.server.name));
        }
    }
}

/// The task, from when it is spawned to its end.
struct End(Arc<Upkeep>);

impl Drop for End {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        if !state.is_running {
            return;
        }
        // Its runtime is.
        state.is_gone = true;
        let closing = std::mem::take(&mut state.closing);
        let left = (
            std::mem::take(&mut state.agenda),
            std::mem::take(&mut state.leaves),
        );
        drop(state);
        closing.into_iter().for_each(Waker::wake);
        drop(left);
    }
}

/// A renewal that has been sent.
struct Sent {
    hold: Arc<dyn Kept>,
    renewal: Renewal,
    route: Route,
    pending: Pending,
}

async fn run(end: End) {
    let upkeep = &end.0;
    let mut sent: Vec<Sent> = Vec::new();
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    poll_fn(|context| {
        loop {
            upkeep.do_what_is_due(&mut sent);
            poll_renewals(&mut sent, context);
            upkeep.poll_leaves(context);
            match upkeep.rest(sent.is_empty(), timer.as_mut(), context) {
                Rest::Due => {}
                Rest::Wait => return Poll::Pending,
                Rest::End => return Poll::Ready(()),
            }
        }
    })
    .await;
}

enum Rest {
    /// There is more.
    Due,
    Wait,
    End,
}

impl Upkeep {
    fn do_what_is_due(&self, sent: &mut Vec<Sent>) {
        let now = BootInstant::now();
        loop {
            let due = lock(&self.0).agenda.pop(now);
            match due {
                Some(Due::Hold(hold)) => {
                    let Some((renewals, next)) = hold.look(now) else {
                        continue;
                    };
                    sent.extend(renewals.into_iter().map(|renewal| {
                        let route = hold.server(renewal.server).route(hold.who().0);
                        Sent::new(hold.clone(), renewal, route)
                    }));
                    let slot = lock(&self.0).agenda.add(next, Due::Hold(hold.clone()));
                    hold.moved(slot);
                }
                Some(Due::Sleeper(waker)) => waker.wake(),
                Some(Due::Leave(mut leave)) => {
                    leave.say();
                    lock(&self.0).leaves.push(leave);
                }
                None => return,
            }
        }
    }

    fn poll_leaves(&self, context: &mut Context<'_>) {
        let leaves = std::mem::take(&mut lock(&self.0).leaves);
        let (mut waiting, mut failed, mut said) = (Vec::new(), Vec::new(), 0);
        for mut leave in leaves {
            match leave.poll(context) {
                Poll::Pending => waiting.push(leave),
                Poll::Ready(Ok(_)) => said += 1,
                Poll::Ready(Err(error)) if leave.is_in_vain(&error) => {
                    trace::abandoned(&leave.server.name, &leave.key, &error);
                    said += 1;
                }
                Poll::Ready(Err(_)) => failed.push(leave),
            }
        }
        let now = BootInstant::now();
        let mut state = lock(&self.0);
        state.leaves.append(&mut waiting);
        for mut leave in failed {
            let due = now + leave.pause;
            leave.pause = (leave.pause * 2).min(LONGEST_PAUSE);
            state.agenda.add(due, Due::Leave(leave));
        }
        state.unsaid -= said;
        if state.unsaid == 0 {
            let closing = std::mem::take(&mut state.closing);
            drop(state);
            closing.into_iter().for_each(Waker::wake);
        }
    }

    /// Sleeps until the next thing is due.
    fn rest(&self, is_idle: bool, mut timer: Pin<&mut Sleep>, context: &mut Context<'_>) -> Rest {
        let mut state = lock(&self.0);
        let first = state.agenda.first();
        if is_idle && state.is_dropped && state.unsaid == 0 && first.is_none() {
            state.is_running = false;
            return Rest::End;
        }
        state.task = Some(context.waker().clone());
        let now = BootInstant::now();
        // Timers stand still in suspend. And who comes while it sleeps need not wake it.
        let next = first.map_or(LOOK, |first| first.since(now).min(LOOK));
        if next.is_zero() {
            return Rest::Due;
        }
        state.wakes = first.is_some().then(|| now + next);
        if first.is_none() {
            return Rest::Wait;
        }
        drop(state);
        timer.as_mut().reset(tokio::time::Instant::now() + next);
        match timer.poll(context) {
            Poll::Ready(()) => Rest::Due,
            Poll::Pending => Rest::Wait,
        }
    }
}

impl Leave {
    /// Whether there is nothing left that could be said, or anybody who could be told.
    fn is_in_vain(&self, error: &Error) -> bool {
        let is_final = matches!(error, Error::NoModule { .. } | Error::Closed);
        is_final || BootInstant::now() >= self.until
    }
}

impl Sent {
    fn new(hold: Arc<dyn Kept>, renewal: Renewal, route: Route) -> Sent {
        let command = Command::Renew {
            who: hold.who(),
            lease: renewal.lease,
            token: renewal.token,
        };
        // A connection that is dead is found out while there is time for another.
        let limit = renewal.lease.renewal_period().max(SHORTEST_LIMIT);
        let pending = route.send_within(limit, &command, renewal.sent);
        Sent {
            hold,
            renewal,
            route,
            pending,
        }
    }
}

fn poll_renewals(sent: &mut Vec<Sent>, context: &mut Context<'_>) {
    let mut failed: HashMap<String, (usize, Error)> = HashMap::new();
    let mut at = 0;
    while at < sent.len() {
        let Poll::Ready(answer) = sent[at].pending.poll_take(context) else {
            at += 1;
            continue;
        };
        let done = sent.swap_remove(at);
        let server = done.hold.server(done.renewal.server).clone();
        if let Some(route) = server.redirected(&done.route, &answer) {
            sent.push(Sent::new(done.hold, done.renewal, route));
            continue;
        }
        let answer = renewed(answer, &server.name);
        if let Err(error) = &answer {
            let count = failed.entry(server.name.clone());
            count.or_insert_with(|| (0, error.clone())).0 += 1;
        }
        done.hold.on_renewed(&done.renewal, answer);
    }
    for (server, (holds, error)) in failed {
        trace::renewal_failed(&server, holds, &error);
    }
}

/// What the answer to a renewal says.
pub(crate) fn renewed(answer: Answer, server: &str) -> Result<Option<Token>, Error> {
    token(checked(answer, server)?)
}

impl std::fmt::Debug for Upkeep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = lock(&self.0);
        f.debug_struct("Upkeep")
            .field("unsaid", &state.unsaid)
            .field("is_running", &state.is_running)
            .finish_non_exhaustive()
    }
}
