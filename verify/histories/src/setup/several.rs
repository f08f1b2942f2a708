//! Five independent servers: Redlock.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mortise_harness::{ClockStep, Dice, Link, Server};

use super::{Diary, Entry, LEASE, Setup, View};
use crate::check::Promises;
use crate::client::Place;

pub(crate) struct Several {
    servers: Vec<Server>,
    /// How far the wall clock of the last server is ahead.
    ahead: Duration,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// This many restart with what they last saved, if they have saved anything.
    Forget(usize),
    Freeze(usize),
    /// The wall clock of the last server steps ahead, or back to the right time. With more than two wrong clocks there is no majority.
    Step,
}

const FAULTS: [Fault; 8] = [
    Fault::Forget(1),
    Fault::Forget(2),
    Fault::Forget(3),
    Fault::Forget(4),
    Fault::Forget(5),
    Fault::Freeze(1),
    Fault::Freeze(2),
    Fault::Step,
];

impl Several {
    /// The longest lease, and more than the second by which tokens may be ahead of the servers' clocks.
    pub(crate) const GRACE: u64 = 2 * LEASE;

    /// Each with this grace, in milliseconds. With less than the lease they grant too early.
    pub(crate) fn start(grace: u64) -> Several {
        let start = |_| {
            Server::builder()
                .alone()
                .clock_shim()
                .module_arg("max-lease", &LEASE.to_string())
                .module_arg("grace", &grace.to_string())
                .start()
        };
        Several {
            servers: (0..5).map(start).collect(),
            ahead: Duration::ZERO,
        }
    }

    /// By little more than the second that clients put up with, or by minutes.
    fn step(&mut self, dice: &mut Dice) {
        let step = match self.ahead {
            Duration::ZERO => {
                let most = *dice.pick(&[1_500, 600_000]);
                self.ahead = Duration::from_millis(1 + dice.roll(most));
                ClockStep::Forward(self.ahead)
            }
            ahead => {
                self.ahead = Duration::ZERO;
                ClockStep::Back(ahead)
            }
        };
        self.servers[4].step_clock(step);
    }

    fn run(&mut self, fault: Fault, dice: &mut Dice) {
        let first = usize::try_from(dice.roll(5)).expect("less than five");
        match fault {
            Fault::Forget(count) => {
                for n in first..first + count {
                    self.servers[n % 5].sigkill();
                }
                for n in first..first + count {
                    self.servers[n % 5].start_again();
                }
            }
            Fault::Freeze(count) => {
                let frozen = first..first + count;
                for n in frozen.clone() {
                    self.servers[n % 5].stop_signal();
                }
                thread::sleep(Duration::from_millis(50 + dice.roll(2_500)));
                for n in frozen {
                    self.servers[n % 5].cont_signal();
                }
            }
            Fault::Step => self.step(dice),
        }
    }
}

impl Setup for Several {
    fn promises(&self) -> Promises {
        Promises::with_losses(false)
    }

    fn entry(&mut self) -> Entry {
        let links = self.servers.iter().map(|it| Arc::new(Link::to(it)));
        let links: Vec<Arc<Link>> = links.collect();
        Entry {
            place: Place::Quorum(links.iter().map(|link| link.port()).collect()),
            links,
        }
    }

    fn disturb(&mut self, dice: &mut Dice, diary: &Diary) {
        let fault = *dice.pick(&FAULTS);
        diary.fault(&format!("{fault:?}"), || self.run(fault, dice));
        // While three servers are in their grace, nobody gets a majority.
        thread::sleep(Duration::from_millis(dice.roll(Several::GRACE + LEASE)));
    }

    fn heal(&mut self, _: &Diary) {}

    fn servers(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }

    /// Guarded data is on one server.
    fn primaries(&self) -> Vec<&Server> {
        Vec::new()
    }

    fn view(&self) -> View {
        View::Nowhere
    }
}
