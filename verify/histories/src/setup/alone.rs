//! Servers that know nothing of one another: one, or the five of Redlock.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mortise_harness::{ClockStep, Dice, Link, Server, eventually, try_cmd};

use super::{Diary, Entry, LEASE, Primary, Setup, View};
use crate::check::Promises;
use crate::client::Place;

/// What the servers are told, and what happens to them. A control changes one thing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    count: usize,
    /// Whether a kill leaves all data: the append-only file is written before each reply.
    keeps_data: bool,
    /// In milliseconds.
    grace: u64,
    faults: &'static [Fault],
}

impl Settings {
    pub(crate) const KEPT: Settings = Settings {
        count: 1,
        keeps_data: true,
        grace: 0,
        faults: &[
            Fault::Kill(1),
            Fault::Freeze(1),
            Fault::Step,
            Fault::Flush,
            Fault::Swap,
        ],
    };

    /// It never breaks its locks, for clients that cannot tell when that happened.
    pub(crate) const UNBROKEN: Settings = Settings {
        faults: &[
            Fault::Kill(1),
            Fault::Kill(1),
            Fault::Kill(1),
            Fault::Freeze(1),
            Fault::Step,
        ],
        ..Settings::KEPT
    };

    /// A kill leaves no data. Without a grace this is a fault of the set-up. A server that restarts empty makes tokens from its wall
    /// clock alone, so that clock is not stepped back.
    pub(crate) const fn lost(grace: u64) -> Settings {
        Settings {
            keeps_data: false,
            grace,
            faults: &[
                Fault::Kill(1),
                Fault::Kill(1),
                Fault::Freeze(1),
                Fault::Flush,
                Fault::Swap,
            ],
            ..Settings::KEPT
        }
    }

    /// The longest lease, and more than the second by which tokens may be ahead of the servers' clocks.
    pub(crate) const REDLOCK_GRACE: u64 = 2 * LEASE;

    /// Five that restart with what they last saved, if they have saved anything. With less than the lease as their grace they grant too
    /// early.
    pub(crate) const fn redlock(grace: u64) -> Settings {
        Settings {
            count: 5,
            keeps_data: false,
            grace,
            faults: &[
                Fault::Kill(1),
                Fault::Kill(2),
                Fault::Kill(3),
                Fault::Kill(4),
                Fault::Kill(5),
                Fault::Freeze(1),
                Fault::Freeze(2),
                Fault::Step,
            ],
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// So many are killed, and restart.
    Kill(usize),
    Freeze(usize),
    /// The wall clock of the last server steps ahead, or back. With more than two wrong clocks of five there is no majority.
    Step,
    Flush,
    Swap,
}

pub(crate) struct Alone {
    settings: Settings,
    servers: Vec<Server>,
    /// How far the wall clock of the last server is ahead, in milliseconds.
    ahead: i64,
}

impl Alone {
    pub(crate) fn start(settings: Settings) -> Alone {
        let start = |_| {
            let builder = Server::builder()
                .alone()
                .clock_shim()
                .module_arg("max-lease", &LEASE.to_string())
                .module_arg("grace", &settings.grace.to_string());
            match settings.keeps_data {
                true => builder.appending().start(),
                false => builder.start(),
            }
        };
        Alone {
            settings,
            servers: (0..settings.count).map(start).collect(),
            ahead: 0,
        }
    }

    fn is_one(&self) -> bool {
        self.servers.len() == 1
    }

    fn kill(&mut self, servers: &[usize]) {
        for n in servers {
            self.servers[*n].sigkill();
            if self.is_one() && !self.settings.keeps_data {
                // The file of BGSAVE is older than the locks.
                let _ = fs::remove_file(self.servers[*n].dir().join("dump.rdb"));
            }
        }
        for n in servers {
            self.servers[*n].start_again();
        }
    }

    /// By little more than the second that clients of a quorum put up with, or by minutes; and back.
    fn step(&mut self, dice: &mut Dice) {
        let most = *dice.pick(&[1_500, 600_000]);
        let random = i64::try_from(1 + dice.roll(most)).expect("a few minutes");
        let by = match self.ahead {
            ..=0 => random,
            // One server's clock may be behind then.
            _ if self.is_one() => -random,
            ahead => -ahead,
        };
        self.ahead += by;
        let step = Duration::from_millis(by.unsigned_abs());
        self.servers[self.settings.count - 1].step_clock(match by {
            ..0 => ClockStep::Back(step),
            _ => ClockStep::Forward(step),
        });
    }

    fn run(&mut self, fault: Fault, dice: &mut Dice, diary: &Diary) {
        let count = self.servers.len();
        let first = usize::try_from(dice.roll(count as u64)).expect("a few");
        let some = |many: usize| -> Vec<usize> {
            let many = many.min(count);
            (first..first + many).map(|n| n % count).collect()
        };
        match fault {
            Fault::Kill(many) => self.kill(&some(many)),
            Fault::Freeze(many) => {
                for n in some(many) {
                    self.servers[n].stop_signal();
                }
                let longest = *dice.pick(&[300, 800, 2_500]);
                some_time(dice, longest);
                for n in some(many) {
                    self.servers[n].cont_signal();
                }
            }
            Fault::Step => self.step(dice),
            Fault::Flush => diary.break_locks(&self.servers[0], &["FLUSHALL"], false),
            Fault::Swap => {
                diary.break_locks(&self.servers[0], &["SWAPDB", "0", "1"], true);
                some_time(dice, 300);
                diary.break_locks(&self.servers[0], &["SWAPDB", "0", "1"], true);
            }
        }
    }
}

fn some_time(dice: &mut Dice, up_to: u64) {
    thread::sleep(Duration::from_millis(50 + dice.roll(up_to)));
}

impl Setup for Alone {
    fn promises(&self) -> Promises {
        Promises {
            one_token_clock: self.is_one(),
            loses_nothing: self.settings.keeps_data,
            grants_at_once: self.settings.keeps_data,
        }
    }

    fn entry(&mut self) -> Entry {
        let links = self.servers.iter().map(|it| Arc::new(Link::to(it)));
        let links: Vec<Arc<Link>> = links.collect();
        let ports: Vec<u16> = links.iter().map(|link| link.port()).collect();
        let place = match ports[..] {
            [port] => Place::One(port),
            _ => Place::Quorum(ports),
        };
        Entry { place, links }
    }

    fn disturb(&mut self, dice: &mut Dice, diary: &Diary) {
        let fault = *dice.pick(self.settings.faults);
        diary.fault(&format!("{fault:?}"), || self.run(fault, dice, diary));
        if !self.is_one() {
            // While three servers are in their grace, nobody gets a majority.
            let rest = dice.roll(Settings::REDLOCK_GRACE + LEASE);
            thread::sleep(Duration::from_millis(rest));
        }
    }

    fn heal(&mut self, _: &Diary) {
        for server in &self.servers {
            eventually("the server takes writes", || {
                try_cmd!(server.connect(), "SET", "healed", "yes").is_ok()
            });
        }
    }

    fn servers(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }

    /// Guarded data is on one server.
    fn primaries(&self) -> Vec<&Server> {
        match &self.servers[..] {
            [server] => vec![server],
            _ => Vec::new(),
        }
    }

    fn view(&self) -> View {
        match &self.servers[..] {
            [server] => View::Primary(Primary::at(server.port())),
            _ => View::Nowhere,
        }
    }
}
