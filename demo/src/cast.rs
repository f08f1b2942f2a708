//! The ten processes, from outside: starts, freezes, wakes and kills them, and reads their lines.

use std::env;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::options::{Actor, Pace};

pub(crate) const NAMES: [&str; 10] = [
    "ann", "ben", "cat", "dan", "eve", "fay", "gil", "hal", "ida", "joe",
];

/// A line that one of them printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its place among the names.
    pub(crate) who: usize,
    pub(crate) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// It asks for the lock.
    Waits,
    /// It was granted the lock by this token.
    Holds(u64),
    /// Its ticket is in the ledger, by this token.
    Sold(u64, u64),
    /// The server refused to write its ticket into the ledger.
    Refused(u64, u64),
    /// It has ended.
    Ended,
}

/// The processes. Dropping this kills them.
pub(crate) struct Cast {
    children: Vec<Child>,
    pub(crate) events: Receiver<Event>,
}

impl Cast {
    pub(crate) fn start(url: &str, pace: Pace) -> io::Result<Cast> {
        let program = env::current_exe()?;
        let (sender, events) = channel();
        let mut cast = Cast {
            children: Vec::new(),
            events,
        };
        for (who, name) in NAMES.into_iter().enumerate() {
            let part = Actor {
                name: name.to_owned(),
                url: url.to_owned(),
                work: pace.work,
                lease: pace.lease,
            };
            let mut child = Command::new(&program)
                .args(part.args())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?;
            let lines = child.stdout.take().map(BufReader::new);
            cast.children.push(child);
            let sender = sender.clone();
            thread::spawn(move || listen(who, lines, &sender));
        }
        Ok(cast)
    }

    pub(crate) fn pid(&self, who: usize) -> u32 {
        self.children[who].id()
    }

    pub(crate) fn freeze(&self, who: usize) -> io::Result<()> {
        self.signal(who, Signal::STOP)
    }

    pub(crate) fn wake(&self, who: usize) -> io::Result<()> {
        self.signal(who, Signal::CONT)
    }

    pub(crate) fn kill(&self, who: usize) -> io::Result<()> {
        self.signal(who, Signal::KILL)
    }

    fn signal(&self, who: usize, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.children[who]), signal)?)
    }
}

impl Drop for Cast {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn listen(who: usize, lines: Option<impl BufRead>, events: &Sender<Event>) {
    let lines = lines.into_iter().flat_map(BufRead::lines);
    let said = lines.map_while(Result::ok).filter_map(|line| read(&line));
    for what in said.chain([What::Ended]) {
        if events.send(Event { who, what }).is_err() {
            return;
        }
    }
}

fn read(line: &str) -> Option<What> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |at: usize| words.get(at)?.parse().ok();
    Some(match words[0] {
        "waits" => What::Waits,
        "holds" => What::Holds(number(1)?),
        "sold" => What::Sold(number(1)?, number(2)?),
        "refused" => What::Refused(number(1)?, number(2)?),
        _ => return None,
    })
}
