//! Judges what clients believe, by the true time, which no client knows.
//!
//! A guard is a belief from when the client returns it to its deadline on the clock of its process, even while that process is
//! stopped. It also counts after the client has reported the loss, until the guard is released or dropped. A deadline can move only
//! when a task of the process runs. The referee reads it then and only then, because reading a guard must not make it notice a loss.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::dice::Dice;
use crate::error::Loss;
use crate::held::Held;
use crate::name::Mode;
use crate::parts::{Micros, Permits, ProcessId, ms};
use crate::plan::Plan;
use crate::time::BootInstant;
use crate::world::{self, Node, micros, with};

#[derive(Debug)]
struct Belief {
    ticket: u64,
    process: ProcessId,
    key: Vec<u8>,
    owner: Vec<u8>,
    mode: Mode,
    permits: Option<Permits>,
    /// If it was revoked, the end of its lease.
    revoked: Option<Micros>,
    held: Held,
    /// It was lost before the deadline that its guard has shown.
    is_lost: bool,
    /// The last deadline that its guard has shown, and its true time.
    deadline: BootInstant,
    until: Micros,
}

/// A lock that was released and stays taken for a while.
#[derive(Debug)]
struct Taken {
    key: Vec<u8>,
    mode: Mode,
    until: Micros,
}

/// The largest tokens so far of one key.
#[derive(Debug, Default)]
struct Tokens {
    of_writers: u64,
    of_all: u64,
    /// Of each hold, by owner.
    by_owner: BTreeMap<Vec<u8>, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Referee {
    beliefs: Vec<Belief>,
    tokens: BTreeMap<Vec<u8>, Tokens>,
    /// Locks that nobody may be granted for a while.
    taken: Vec<Taken>,
    tickets: u64,
    /// Servers lose nothing that they have granted, so a belief that they do not confirm is wrong.
    servers_keep_all: bool,
    pub(crate) granted: u64,
}

thread_local! {
    static REFEREE: RefCell<Referee> = RefCell::default();
}

/// A belief that is judged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

pub(crate) fn begin(plan: &Plan) {
    let referee = Referee {
        servers_keep_all: !plan.loses_data(),
        ..Referee::default()
    };
    // The last run's beliefs belong to a world that has ended.
    drop(REFEREE.replace(referee));
}

pub(crate) fn end() -> Referee {
    REFEREE.take()
}

/// A client returned a guard, or changed its mode.
pub(crate) fn enter(held: Held, mode: Mode, permits: Option<Permits>) -> Ticket {
    let process = world::this_process();
    let deadline = held.deadline();
    let belief = Belief {
        ticket: 0,
        process,
        key: held.key.clone(),
        owner: held.owner().to_vec(),
        mode,
        permits: permits.filter(|_| mode == Mode::Read),
        revoked: None,
        is_lost: false,
        deadline,
        until: moment_of(process, deadline),
        held,
    };
    REFEREE.with_borrow_mut(|referee| referee.enter(belief))
}

/// The guard is released now, or about to change.
pub(crate) fn leave(ticket: &Ticket) {
    REFEREE.with_borrow_mut(|referee| referee.beliefs.retain(|it| it.ticket != ticket.0));
}

/// A process closes its client, which releases all its holds.
pub(crate) fn closes(process: ProcessId) {
    REFEREE.with_borrow_mut(|referee| {
        let beliefs = &mut referee.beliefs;
        beliefs.retain(|it| it.process != process || !it.is_lost);
    });
}

/// The key and owner of a random current holder.
pub(crate) fn pick(dice: &mut Dice) -> Option<(Vec<u8>, Vec<u8>)> {
    REFEREE.with_borrow(|referee| {
        let most = referee.beliefs.len().checked_sub(1)? as u64;
        let belief = &referee.beliefs[dice.within(0..=most) as usize];
        Some((belief.key.clone(), belief.owner.clone()))
    })
}

/// The guard was released, and its lock stays taken until `until`.
pub(crate) fn keep_taken(held: &Held, mode: Mode, until: Micros) {
    let key = held.key.clone();
    REFEREE.with_borrow_mut(|referee| {
        if referee.servers_keep_all {
            referee.taken.push(Taken { key, mode, until });
        }
    });
}

/// A server has just revoked this hold, which ends in `left`.
pub(crate) fn revoked(key: &[u8], owner: &[u8], left: Duration) {
    // Clocks differ by less than a hundredth.
    let until = with(|world| world.now()) + micros(left + left / 100) + ms(2);
    REFEREE.with_borrow_mut(|referee| {
        if !referee.servers_keep_all {
            // It may have a shorter lease than was granted.
            return;
        }
        let revoked = referee.beliefs.iter_mut();
        for belief in revoked.filter(|it| it.key == key && it.owner == owner) {
            belief.revoked = Some(belief.revoked.map_or(until, |before| before.min(until)));
        }
    });
}

/// A task of that process has run.
pub(crate) fn update(process: ProcessId) {
    REFEREE.with_borrow_mut(|referee| referee.update(process));
}

/// A server may have changed.
pub(crate) fn judge_servers() {
    REFEREE.with_borrow(Referee::judge_servers);
}

impl Belief {
    fn judge_revoked(&self) {
        if let Some(until) = self.revoked
            && self.until > until
        {
            let (key, owner) = (text(&self.key), text(&self.owner));
            world::fail(format!(
                "{owner} believes in {key} until {} µs, and was revoked: it ends by {until}",
                self.until
            ));
        }
    }
}

fn moment_of(process: ProcessId, shown: BootInstant) -> Micros {
    let shown = micros(shown.since(BootInstant::default()));
    with(|world| world.processes[process].clock.moment_of(shown))
}

impl Referee {
    fn enter(&mut self, mut belief: Belief) -> Ticket {
        self.tickets += 1;
        self.granted += 1;
        belief.ticket = self.tickets;
        let ticket = Ticket(self.tickets);
        // It was lost before the client returned it.
        if !belief.held.is_valid() {
            return ticket;
        }
        let token = belief.held.token().get();
        world::note(|| {
            let (key, owner) = (text(&belief.key), text(&belief.owner));
            let (process, mode, until) = (belief.process, belief.mode, belief.until);
            format!("process {process}: {owner} is inside {key} ({mode}) by {token} until {until}")
        });
        self.judge_others(&belief);
        self.judge_limit(&belief);
        self.judge_taken(&belief);
        self.judge_token(&belief, token);
        self.beliefs.push(belief);
        ticket
    }

    fn judge_others(&self, new: &Belief) {
        let now = with(|world| world.now());
        let conflicts = |it: &&Belief| {
            it.key == new.key
                && it.owner != new.owner
                && it.until > now
                && (it.mode == Mode::Write || new.mode == Mode::Write)
        };
        if let Some(other) = self.beliefs.iter().find(conflicts) {
            let (one, two) = (text(&other.owner), text(&new.owner));
            let (first, second) = (other.process, new.process);
            world::fail(format!(
                "two are inside {}: {one} of process {first} until {} µs, and {two} of process {second}",
                text(&new.key),
                other.until
            ));
        }
    }

    /// Holders never have more permits together than there are.
    fn judge_limit(&self, new: &Belief) {
        let Some(Permits { limit, .. }) = new.permits else {
            return;
        };
        let now = with(|world| world.now());
        let others = self.beliefs.iter();
        let others = others.filter(|it| it.key == new.key && it.until > now);
        let inside = others.chain([new]).filter_map(|it| it.permits);
        let inside: u32 = inside.map(|permits| permits.count).sum();
        if inside > limit {
            world::fail(format!(
                "{inside} permits of {limit} are out at {}",
                text(&new.key)
            ));
        }
    }

    fn judge_taken(&self, new: &Belief) {
        let now = with(|world| world.now());
        let conflicts = |it: &&Taken| {
            it.key == new.key
                && it.until > now
                && (it.mode == Mode::Write || new.mode == Mode::Write)
        };
        if let Some(taken) = self.taken.iter().find(conflicts) {
            let (key, owner) = (text(&new.key), text(&new.owner));
            world::fail(format!(
                "{owner} is inside {key}, which stays taken until {} µs",
                taken.until
            ));
        }
    }

    fn judge_token(&mut self, new: &Belief, token: u64) {
        let tokens = self.tokens.entry(new.key.clone()).or_default();
        if tokens.by_owner.get(&new.owner) == Some(&token) {
            return;
        }
        let least = match new.mode {
            Mode::Write => tokens.of_all,
            Mode::Read => tokens.of_writers,
        };
        if token <= least {
            let (key, owner) = (text(&new.key), text(&new.owner));
            world::fail(format!(
                "{owner} is inside {key} by token {token}, after one by {least}"
            ));
        }
        tokens.by_owner.insert(new.owner.clone(), token);
        tokens.of_all = tokens.of_all.max(token);
        if new.mode == Mode::Write {
            tokens.of_writers = tokens.of_writers.max(token);
        }
    }

    fn update(&mut self, process: ProcessId) {
        if !self.beliefs.iter().any(|it| it.process == process) {
            return;
        }
        let now = BootInstant::now();
        let mut beliefs = std::mem::take(&mut self.beliefs);
        beliefs.retain_mut(|belief| {
            if belief.process != process {
                return true;
            }
            // From its deadline a guard is lost for good. The scripts check that the client reports it.
            if now >= belief.deadline {
                return false;
            }
            match belief.held.loss() {
                None => {
                    belief.deadline = belief.held.deadline();
                    belief.until = moment_of(process, belief.deadline);
                    belief.judge_revoked();
                    true
                }
                Some(Loss::Denied | Loss::Expired) => {
                    belief.is_lost = true;
                    true
                }
                // The task itself released, passed on or changed the hold.
                Some(_) => false,
            }
        });
        self.beliefs = beliefs;
    }

    fn judge_servers(&self) {
        if !self.servers_keep_all {
            return;
        }
        with(|world| {
            let now = world.now();
            for belief in self.beliefs.iter().filter(|it| it.until > now) {
                let holds = world.nodes.iter().filter(|node| {
                    let server = &node.server;
                    server.is_held_by(&belief.key, &belief.owner, server.clock.at(now))
                });
                let (count, all) = (holds.count(), world.nodes.len());
                let permits = belief.permits.map_or(0, |permits| permits.count);
                let has = |it: &Node| it.server.reads_of(&belief.key, &belief.owner) >= permits;
                if permits > 0 && count > 0 && !world.nodes.iter().any(has) {
                    let owner = text(&belief.owner);
                    return world.fail(format!("{owner} has fewer permits than {permits}"));
                }
                if count < all / 2 + 1 {
                    let (key, owner) = (text(&belief.key), text(&belief.owner));
                    let until = belief.until;
                    return world.fail(format!(
                        "{owner} believes in {key} until {until} µs, and {count} of {all} servers have it so"
                    ));
                }
            }
        });
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
