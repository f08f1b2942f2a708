//! Judges what clients believe, by the one true time that none of them knows.
//!
//! A guard is a belief from the moment it is handed out to its deadline, as the clock of its process shows it, whether that
//! process runs or is stopped; also where the client says before that it is lost, until the guard is given back. Deadlines move when
//! a task of the process has run, so they are read then, and only then: what is asked of a guard must not help it to notice something.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::dice::Dice;
use crate::lock::Held;
use crate::parts::{Micros, Permits, ProcessId, ms};
use crate::plan::Plan;
use crate::value::Loss;
use crate::value::clock::BootInstant;
use crate::value::mode::Mode;
use crate::world::{self, Node, micros, with};

#[derive(Debug)]
struct Belief {
    ticket: u64,
    process: ProcessId,
    key: Vec<u8>,
    owner: Vec<u8>,
    mode: Mode,
    permits: Option<Permits>,
    /// It was revoked, so that it ends by then.
    revoked: Option<Micros>,
    held: Held,
    /// It was lost before the deadline that its process has seen.
    is_lost: bool,
    /// The last that its process has seen, and when that truly is.
    deadline: BootInstant,
    until: Micros,
}

/// A lock that was given back, and stays taken.
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
    /// Of each hold, by its name.
    by_owner: BTreeMap<Vec<u8>, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Referee {
    beliefs: Vec<Belief>,
    tokens: BTreeMap<Vec<u8>, Tokens>,
    /// Locks that nobody else has before these moments.
    taken: Vec<Taken>,
    tickets: u64,
    /// A belief without servers that bear it out is wrong: none of them loses what it has granted.
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
    // What is left of the last run belongs to a world that is over.
    drop(REFEREE.replace(referee));
}

pub(crate) fn end() -> Referee {
    REFEREE.take()
}

/// A guard was handed out, or has changed its mode.
pub(crate) fn enter(held: Held, mode: Mode, permits: Option<Permits>) -> Ticket {
    let process = world::this_process();
    let deadline = held.deadline();
    let belief = Belief {
        ticket: 0,
        process,
        key: held.key().to_vec(),
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

/// The guard is given back now, or about to be changed.
pub(crate) fn leave(ticket: &Ticket) {
    REFEREE.with_borrow_mut(|referee| referee.beliefs.retain(|it| it.ticket != ticket.0));
}

/// A process closes its client, which gives all back.
pub(crate) fn closes(process: ProcessId) {
    REFEREE.with_borrow_mut(|referee| {
        let beliefs = &mut referee.beliefs;
        beliefs.retain(|it| it.process != process || !it.is_lost);
    });
}

/// Somebody who is inside now, by key and name.
pub(crate) fn pick(dice: &mut Dice) -> Option<(Vec<u8>, Vec<u8>)> {
    REFEREE.with_borrow(|referee| {
        let most = referee.beliefs.len().checked_sub(1)? as u64;
        let belief = &referee.beliefs[dice.within(0..=most) as usize];
        Some((belief.key.clone(), belief.owner.clone()))
    })
}

/// The guard was given back, and its lock stays taken.
pub(crate) fn keep_taken(held: &Held, mode: Mode, until: Micros) {
    let key = held.key().to_vec();
    REFEREE.with_borrow_mut(|referee| {
        if referee.servers_keep_all {
            referee.taken.push(Taken { key, mode, until });
        }
    });
}

/// A server has said just now that this hold ends in `left`: it is revoked.
pub(crate) fn revoked(key: &[u8], owner: &[u8], left: Duration) {
    // Clocks differ by less than that.
    let until = with(|world| world.now()) + micros(left + left / 100) + ms(2);
    REFEREE.with_borrow_mut(|referee| {
        if !referee.servers_keep_all {
            // It may know of a shorter lease than was granted.
            return;
        }
        let revoked = referee.beliefs.iter_mut();
        for belief in revoked.filter(|it| it.key == key && it.owner == owner) {
            belief.revoked = Some(belief.revoked.map_or(until, |before| before.min(until)));
        }
    });
}

/// A task of that process has run.
pub(crate) fn look(process: ProcessId) {
    REFEREE.with_borrow_mut(|referee| referee.look(process));
}

/// Something has happened at a server.
pub(crate) fn look_at_servers() {
    REFEREE.with_borrow(Referee::look_at_servers);
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
        // Lost before anybody had it.
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

    /// By permits no more are inside than there are.
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

    fn look(&mut self, process: ProcessId) {
        if !self.beliefs.iter().any(|it| it.process == process) {
            return;
        }
        let now = BootInstant::now();
        let mut beliefs = std::mem::take(&mut self.beliefs);
        beliefs.retain_mut(|belief| {
            if belief.process != process {
                return true;
            }
            // From then on a guard is lost for good; whether its client says so is for the scripts to see.
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
                // Whoever gives it back, passes it on or changes it knows of that.
                Some(_) => false,
            }
        });
        self.beliefs = beliefs;
    }

    fn look_at_servers(&self) {
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
