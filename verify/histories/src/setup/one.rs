//! One server.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mortise_harness::{ClockStep, Dice, Link, Server, eventually, try_cmd};

use super::{Diary, Entry, LEASE, Primary, Setup, View};
use crate::check::Promises;
use crate::client::Place;

/// What a kill leaves of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// Everything: the append-only file is written before each reply.
    Kept,
    /// Nothing. Without a grace this is a fault of the set-up.
    Lost { grace: u64 },
}

pub(crate) struct One {
    server: Server,
    data: Data,
    /// Whether FLUSHALL and SWAPDB break locks, too.
    breaks: bool,
    /// How many seconds its wall clock is ahead.
    ahead: i64,
}

/// The possible faults. A server that restarts empty makes tokens from its wall clock alone, so that clock is not stepped back.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Freeze,
    Step,
    Flush,
    Swap,
}

const FAULTS: [Fault; 5] = [
    Fault::Kill,
    Fault::Freeze,
    Fault::Step,
    Fault::Flush,
    Fault::Swap,
];

impl One {
    pub(crate) fn start(data: Data) -> One {
        let builder = Server::builder()
            .alone()
            .clock_shim()
            .module_arg("max-lease", &LEASE.to_string());
        let server = match data {
            Data::Kept => builder
                .config("appendonly", "yes")
                .config("appendfsync", "always")
                .start(),
            Data::Lost { grace } => builder.module_arg("grace", &grace.to_string()).start(),
        };
        One {
            server,
            data,
            breaks: true,
            ahead: 0,
        }
    }

    /// Never breaks its locks, for clients that cannot tell when that happened.
    pub(crate) fn unbroken(self) -> One {
        One {
            breaks: false,
            ..self
        }
    }

    fn kill(&mut self) {
        self.server.sigkill();
        if matches!(self.data, Data::Lost { .. }) {
            // The file of BGSAVE is older than the locks.
            let _ = fs::remove_file(self.server.dir().join("dump.rdb"));
        }
        self.server.start_again();
    }

    /// Steps the wall clock by up to ten minutes, and back.
    fn step(&mut self, dice: &mut Dice) {
        let seconds = dice.roll(600);
        let by = Duration::from_secs(seconds);
        if self.ahead > 0 {
            self.ahead -= i64::try_from(seconds).expect("a few seconds");
            self.server.step_clock(ClockStep::Back(by));
        } else {
            self.ahead += i64::try_from(seconds).expect("a few seconds");
            self.server.step_clock(ClockStep::Forward(by));
        }
    }

    fn run(&mut self, fault: Fault, dice: &mut Dice, diary: &Diary) {
        match fault {
            Fault::Kill => self.kill(),
            Fault::Freeze => {
                self.server.stop_signal();
                let longest = *dice.pick(&[300, 800, 2_500]);
                some_time(dice, longest);
                self.server.cont_signal();
            }
            Fault::Step => self.step(dice),
            Fault::Flush => diary.break_locks(&self.server, &["FLUSHALL"], false),
            Fault::Swap => {
                diary.break_locks(&self.server, &["SWAPDB", "0", "1"], true);
                some_time(dice, 300);
                diary.break_locks(&self.server, &["SWAPDB", "0", "1"], true);
            }
        }
    }
}

fn some_time(dice: &mut Dice, up_to: u64) {
    thread::sleep(Duration::from_millis(50 + dice.roll(up_to)));
}

impl Setup for One {
    fn promises(&self) -> Promises {
        Promises {
            one_token_clock: true,
            loses_nothing: self.data == Data::Kept,
            grants_at_once: self.data == Data::Kept,
        }
    }

    fn entry(&mut self) -> Entry {
        let link = Arc::new(Link::to(&self.server));
        Entry {
            place: Place::One(link.port()),
            links: vec![link],
        }
    }

    fn disturb(&mut self, dice: &mut Dice, diary: &Diary) {
        let forgets = matches!(self.data, Data::Lost { .. });
        let fault = match *dice.pick(&FAULTS) {
            Fault::Step if forgets => Fault::Kill,
            Fault::Flush | Fault::Swap if !self.breaks => Fault::Kill,
            fault => fault,
        };
        diary.fault(&format!("{fault:?}"), || self.run(fault, dice, diary));
    }

    fn heal(&mut self, _: &Diary) {
        eventually("the server takes writes", || {
            try_cmd!(self.server.connect(), "SET", "healed", "yes").is_ok()
        });
    }

    fn servers(&self) -> Vec<&Server> {
        vec![&self.server]
    }

    fn primaries(&self) -> Vec<&Server> {
        self.servers()
    }

    fn view(&self) -> View {
        View::Primary(Primary::at(self.server.port()))
    }
}
