//! Starts, stops, continues, kills and restarts the client processes, and cuts or slows down their links.

use std::env;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{Dice, Link};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::client::{Confirming, Job, Kind, Place};
use crate::languages::Worker;
use crate::setup::{Diary, Entry, Setup};

/// The job of one client.
#[derive(Debug, Clone)]
pub(crate) enum Part {
    /// One of our own clients, with this many tasks.
    Ours(Kind, u64),
    /// A client of another language, if the set-up has a single address.
    Theirs(Worker),
}

/// The locks that all clients use.
#[derive(Debug, Clone)]
pub(crate) struct Play {
    pub(crate) seed: u64,
    /// Other languages use the first one, too.
    pub(crate) locks: Vec<String>,
    pub(crate) pools: Vec<String>,
    /// The locks that clients also acquire together.
    pub(crate) bundle: Vec<String>,
    pub(crate) guards: bool,
    /// Whether clients mostly stay inside for long.
    pub(crate) lingers: bool,
}

impl Play {
    pub(crate) fn keys(&self) -> Vec<String> {
        [&*self.locks, &*self.pools].concat()
    }

    /// The lock that other languages use, too.
    pub(crate) fn shared(&self) -> &str {
        &self.locks[0]
    }
}

struct Member {
    part: Part,
    name: String,
    entry: Entry,
    child: Child,
    stdin: Option<ChildStdin>,
    incarnation: u64,
}

pub(crate) struct Crowd {
    members: Vec<Member>,
    play: Play,
    /// Of every lock, in milliseconds.
    lease: u64,
    /// How clients confirm their holds, if they do.
    confirming: Option<Confirming>,
    dir: PathBuf,
}

impl Crowd {
    pub(crate) fn start(
        parts: &[Part],
        play: &Play,
        setup: &mut dyn Setup,
        dir: &Path,
    ) -> io::Result<Crowd> {
        let mut crowd = Crowd {
            members: Vec::new(),
            play: play.clone(),
            lease: setup.lease(),
            confirming: setup.confirming(),
            dir: dir.to_owned(),
        };
        for (number, part) in parts.iter().enumerate() {
            let entry = setup.entry();
            if matches!(part, Part::Theirs(_)) && !matches!(entry.place, Place::One(_)) {
                continue;
            }
            let name = match part {
                Part::Ours(kind, _) => format!("{kind:?}{number}").to_lowercase(),
                Part::Theirs(worker) => worker.name.clone(),
            };
            let (child, stdin) = crowd.spawn(part, &name, &entry, 0)?;
            crowd.members.push(Member {
                part: part.clone(),
                name,
                entry,
                child,
                stdin,
                incarnation: 0,
            });
        }
        Ok(crowd)
    }

    fn spawn(
        &self,
        part: &Part,
        name: &str,
        entry: &Entry,
        incarnation: u64,
    ) -> io::Result<(Child, Option<ChildStdin>)> {
        let name = format!("{name}.{incarnation}");
        let mut command = match part {
            Part::Ours(kind, tasks) => self.ours(*kind, *tasks, name, entry, incarnation)?,
            Part::Theirs(worker) => {
                let ledger = self.dir.join(format!("{name}.ledger"));
                worker.command(entry.place.ports()[0], self.play.shared(), &ledger)
            }
        };
        // Its own child processes are stopped and killed with it.
        let mut child = command.process_group(0).stdin(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        Ok((child, stdin))
    }

    fn ours(
        &self,
        kind: Kind,
        tasks: u64,
        name: String,
        entry: &Entry,
        incarnation: u64,
    ) -> io::Result<Command> {
        let job = Job {
            kind,
            seed: self.play.seed.wrapping_add(incarnation * 1_000) ^ hash(&name),
            place: entry.place.clone(),
            history: self.dir.join(format!("{name}.jsonl")),
            name,
            lease: self.lease,
            tasks,
            locks: self.play.locks.clone(),
            pools: self.play.pools.clone(),
            bundle: self.play.bundle.clone(),
            guards: self.play.guards,
            lingers: self.play.lingers,
            confirming: self.confirming,
        };
        let mut command = Command::new(env::current_exe()?);
        command.arg("work").arg(serde_json::to_string(&job)?);
        Ok(command)
    }

    /// Disturbs one client.
    pub(crate) fn disturb(&mut self, dice: &mut Dice, diary: &Diary) {
        let number = usize::try_from(dice.roll(self.members.len() as u64)).expect("a few");
        let ms = |dice: &mut Dice, up_to| Duration::from_millis(20 + dice.roll(up_to));
        let longest = *dice.pick(&[self.lease / 5, self.lease / 2, 2 * self.lease]);
        let time = ms(dice, longest);
        // Clients that find the servers by themselves have no proxy.
        let kinds = if self.members[number].entry.links.is_empty() {
            4
        } else {
            10
        };
        match dice.roll(kinds) {
            0 => diary.client_fault("a client is killed", || self.kill(number)),
            1..4 => diary.client_fault("a client is stopped", || {
                self.signal(number, Signal::STOP);
                thread::sleep(time);
                self.signal(number, Signal::CONT);
            }),
            4..6 => diary.client_fault("a client is cut off", || {
                let link = self.link(number, dice);
                link.cut();
                thread::sleep(time);
                link.mend();
            }),
            6..8 => diary.client_fault("what a client sends later arrives first", || {
                let link = self.link(number, dice);
                link.hold_older();
                thread::sleep(time);
                link.release_older();
            }),
            _ => diary.client_fault("a client's link is slow", || {
                let link = self.link(number, dice);
                link.delay_acknowledgements(ms(dice, 200));
                link.delay_stream(ms(dice, 200));
                thread::sleep(time);
                link.delay_acknowledgements(Duration::ZERO);
                link.delay_stream(Duration::ZERO);
            }),
        }
    }

    fn link(&self, number: usize, dice: &mut Dice) -> Arc<Link> {
        dice.pick(&self.members[number].entry.links).clone()
    }

    fn signal(&self, number: usize, signal: Signal) {
        let pid = Pid::from_child(&self.members[number].child);
        kill_process_group(pid, signal).expect("a client that runs");
    }

    fn kill(&mut self, number: usize) {
        self.signal(number, Signal::KILL);
        let member = &mut self.members[number];
        let _ = member.child.wait();
        member.incarnation += 1;
        let member = &self.members[number];
        let (child, stdin) = self
            .spawn(
                &member.part,
                &member.name,
                &member.entry,
                member.incarnation,
            )
            .expect("a client starts again");
        let member = &mut self.members[number];
        (member.child, member.stdin) = (child, stdin);
    }

    /// Starts the last round. Returns the names of clients whose tasks had no answer in time, or that failed.
    pub(crate) fn last_round(&mut self, patience: Duration) -> Vec<String> {
        for member in &mut self.members {
            match (&member.part, &mut member.stdin) {
                (Part::Ours(..), Some(stdin)) => {
                    let _ = stdin.write_all(b"over\n");
                }
                (Part::Theirs(_), stdin) => drop(stdin.take()),
                (_, None) => {}
            }
        }
        let end = Instant::now() + patience;
        let mut wrong = Vec::new();
        for member in &mut self.members {
            match await_end(&mut member.child, end) {
                Some(status) if status.success() => {}
                ended => wrong.push(format!("{}: {ended:?}", member.name)),
            }
        }
        wrong
    }
}

fn await_end(child: &mut Child, end: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait().expect("a child can be waited for") {
            None if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
            ended => return ended,
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for member in &mut self.members {
            // It may have ended already.
            let _ = kill_process_group(Pid::from_child(&member.child), Signal::KILL);
            let _ = member.child.wait();
        }
    }
}

/// FNV-1a, by Fowler, Noll and Vo.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
