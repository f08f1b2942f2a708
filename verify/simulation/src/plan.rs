//! What a seed decides: how many processes and servers take part, and what happens to them.

use std::time::Duration;

use crate::dice::Dice;
use crate::parts::{Clock, Data, Event, Fates, Micros, ms};
use crate::server::Server;
use crate::world::World;

/// One server, or several with Redlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A [`Client`](crate::client::Client).
    One,
    /// The same; tasks also share locks by permits, pass them on and revoke them.
    Sharing,
    /// Like [`Kind::One`]; tasks also acquire several locks at once, pass some on and revoke some.
    Several,
    /// Redlock over this many servers.
    Quorum(usize),
}

impl Kind {
    /// Whether tasks pass locks on and revoke them.
    pub(crate) fn passes_on(self) -> bool {
        matches!(self, Kind::Sharing | Kind::Several)
    }
}

/// By how much a clock is fast or slow at most, in millionths. Two clocks differ by less than the drift that clients allow
/// for: a hundredth.
const DRIFT: u64 = 4_000;
/// How far apart the wall clocks of servers are at most, in microseconds.
const WALLS_APART: u64 = 300_000;

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) processes: usize,
    pub(crate) tasks: usize,
    pub(crate) keys: usize,
    pub(crate) rounds: usize,
    /// The client's time limit for a reply.
    pub(crate) answer: Duration,
    pub(crate) leases: Vec<u64>,
    pub(crate) fates: Fates,
    /// What data servers have after a restart.
    data: Data,
    /// Whether locks stay taken for a while after their guards.
    pub(crate) keeps_taken: bool,
    /// How many permits a pool has.
    pub(crate) permits: u32,
    /// How often processes are stopped.
    stops: usize,
    kills: usize,
    restarts: usize,
    stalls: usize,
    parts: usize,
}

impl Plan {
    pub(crate) fn of(kind: Kind, dice: &mut Dice) -> Plan {
        let answer = match kind {
            Kind::One | Kind::Sharing | Kind::Several => dice.pick(&[100, 300, 1_000]),
            Kind::Quorum(_) => dice.pick(&[20, 50, 100]),
        };
        let leases = match kind {
            Kind::One | Kind::Sharing | Kind::Several => vec![150, 400, 1_000, 3_000],
            Kind::Quorum(_) => vec![4 * answer, 8 * answer, 20 * answer, 3_000],
        };
        // Some runs have no faults, most a few of each kind.
        let weight = dice.pick(&[0, 5, 20, 20, 60]);
        let mut up_to = |most: u64| dice.within(0..=most);
        let fates = Fates {
            request_lost: up_to(weight),
            reply_lost: up_to(weight),
            late: up_to(weight),
            doubled: up_to(weight),
            slow: up_to(2 * weight),
            until: ms(3_000 + up_to(5_000)),
            latency: up_to(3),
            latest: [50, 500, 4_000][up_to(2) as usize],
        };
        let mut some = |chances: u64, most: u64| match dice.percent(chances) {
            true => dice.within(1..=most) as usize,
            false => 0,
        };
        let (stops, kills, restarts) = (some(50, 3), some(20, 1), some(35, 2));
        let (stalls, parts) = (some(25, 2), some(30, 3));
        Plan {
            kind,
            processes: dice.within(2..=4) as usize,
            tasks: dice.within(1..=3) as usize,
            keys: match kind {
                Kind::Several => dice.within(2..=4) as usize,
                _ => dice.within(1..=2) as usize,
            },
            rounds: dice.within(3..=8) as usize,
            answer: Duration::from_millis(answer),
            leases,
            fates,
            data: match restarts > 0 && dice.percent(60) {
                false => Data::Own,
                true if kind.passes_on() && dice.percent(70) => Data::OfReplica,
                true => Data::Nothing,
            },
            keeps_taken: kind == Kind::Sharing && dice.percent(30),
            permits: match kind {
                Kind::Sharing => dice.within(1..=4) as u32,
                _ => 0,
            },
            stops,
            kills,
            restarts,
            stalls,
            parts,
        }
    }

    pub(crate) fn nodes(&self) -> usize {
        match self.kind {
            Kind::One | Kind::Sharing | Kind::Several => 1,
            Kind::Quorum(count) => count,
        }
    }

    /// Whether servers lose what they have granted.
    pub(crate) fn loses_data(&self) -> bool {
        self.data != Data::Own
    }

    /// Whether tasks may upgrade and downgrade.
    pub(crate) fn is_on_one_server(&self) -> bool {
        !matches!(self.kind, Kind::Quorum(_))
    }

    pub(crate) fn longest_lease(&self) -> u64 {
        self.leases.iter().copied().max().unwrap_or(0)
    }

    /// How long a server that has lost its data grants nothing: until the last lease is over by every clock.
    fn grace(&self) -> u64 {
        self.longest_lease() + self.longest_lease() / 50 + 10
    }

    /// Whether every process closes its client, no server loses data, and no lock stays taken.
    pub(crate) fn ends_clean(&self) -> bool {
        self.kills == 0 && self.restarts == 0 && !self.keeps_taken
    }

    fn clock(dice: &mut Dice) -> Clock {
        Clock {
            offset: ms(1_000_000 + dice.within(0..=1_000_000)),
            ppm: dice.within(0..=2 * DRIFT) as i64 - DRIFT as i64,
        }
    }

    /// Adds servers and processes, and schedules what happens to them.
    pub(crate) fn lay_out(&self, world: &mut World, dice: &mut Dice) {
        for _ in 0..self.nodes() {
            let run_id = dice.next();
            let clock = Plan::clock(dice);
            let ahead = dice.within(0..=WALLS_APART) + ms(2_000_000) - clock.offset;
            world.add_node(Server::new(run_id, clock, ahead));
        }
        // One more process, which starts when the others have ended.
        for _ in 0..=self.processes {
            world.add_process(Plan::clock(dice));
        }
        let end = self.fates.until;
        let moment = |dice: &mut Dice| dice.within(0..=end - 1);
        let within = |dice: &mut Dice, from: Micros, most: u64| {
            let length = ms(dice.within(1..=most));
            (from + length).min(end)
        };
        for _ in 0..self.stops {
            let (process, from) = (
                dice.within(1..=self.processes as u64) as usize - 1,
                moment(dice),
            );
            let most = dice.pick(&[100, 1_000, 4_000]);
            world.at(from, Event::Stop(process));
            world.at(within(dice, from, most), Event::GoOn(process));
        }
        for _ in 0..self.kills {
            let process = dice.within(1..=self.processes as u64) as usize - 1;
            world.at(moment(dice), Event::Kill(process));
        }
        for _ in 0..self.stalls {
            let (node, from) = (
                dice.within(1..=self.nodes() as u64) as usize - 1,
                moment(dice),
            );
            world.at(from, Event::Stall(node, within(dice, from, 1_500)));
        }
        for _ in 0..self.parts {
            let process = dice.within(1..=self.processes as u64) as usize - 1;
            let (node, from) = (
                dice.within(1..=self.nodes() as u64) as usize - 1,
                moment(dice),
            );
            world.at(from, Event::Part(process, node));
            world.at(within(dice, from, 3_000), Event::Join(process, node));
        }
        for _ in 0..self.restarts {
            let (node, from) = (
                dice.within(1..=self.nodes() as u64) as usize - 1,
                moment(dice),
            );
            if self.data == Data::OfReplica {
                let lag = ms(dice.within(0..=200));
                world.at(from.saturating_sub(lag), Event::Replicate(node));
            }
            world.at(from, Event::Down(node));
            let up = Event::Up {
                node,
                data: self.data,
                grace: self.grace(),
            };
            world.at(within(dice, from, 500), up);
        }
    }
}
