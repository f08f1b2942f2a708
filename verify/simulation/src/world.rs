//! The simulated world of one seed: time, which tasks run, and the next event. Each thread has one world.
//!
//! Time is that of tokio, which stands still while any task can run, and then jumps to the next timer. Each process and each
//! server has its own clock, which is a little fast or slow.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::dice::Dice;
use crate::parts::{Clock, Conn, Data, Event, Fates, Life, Micros, NodeId, Permits, ProcessId, ms};
use crate::server::Server;
use crate::token::Token;

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
    static INSIDE: Cell<Option<ProcessId>> = const { Cell::new(None) };
}

/// A program that locks.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) clock: Clock,
    pub(crate) life: Life,
    /// The wakers of tasks that would run if it were not stopped.
    parked: Vec<Waker>,
    /// When it last continued after a stop.
    pub(crate) went_on: Micros,
}

/// A job whose lock was passed on to its runner.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) key: String,
    /// The name that holds the lock until a runner takes it over, and the token.
    pub(crate) owner: String,
    pub(crate) token: Token,
    pub(crate) permits: Option<Permits>,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) server: Server,
    pub(crate) is_down: bool,
    pub(crate) stalled_until: Micros,
    /// What has arrived during the stall.
    pub(crate) unread: VecDeque<Event>,
    /// When the server next has something to do.
    due: Option<Micros>,
}

pub(crate) struct World {
    began: Instant,
    pub(crate) dice: Dice,
    pub(crate) names: Dice,
    events: BTreeMap<(Micros, u64), Event>,
    events_ever: u64,
    pub(crate) messages: u64,
    changed: Arc<Notify>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) processes: Vec<Process>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) parted: BTreeSet<(ProcessId, NodeId)>,
    pub(crate) fates: Fates,
    /// The jobs to do, and the names of all jobs ever.
    pub(crate) jobs: Vec<Job>,
    pub(crate) jobs_ever: BTreeSet<Vec<u8>>,
    trace: Option<Vec<String>>,
    pub(crate) failure: Option<String>,
}

impl World {
    /// Begins a world now, on a runtime whose clock is paused.
    pub(crate) fn begin(mut dice: Dice, fates: Fates, is_traced: bool) {
        let world = World {
            began: Instant::now(),
            names: dice.branch(),
            dice,
            events: BTreeMap::new(),
            events_ever: 0,
            messages: 0,
            changed: Arc::default(),
            nodes: Vec::new(),
            processes: Vec::new(),
            conns: Vec::new(),
            parted: BTreeSet::new(),
            fates,
            jobs: Vec::new(),
            jobs_ever: BTreeSet::new(),
            trace: is_traced.then(Vec::new),
            failure: None,
        };
        WORLD.set(Some(world));
    }

    /// Ends the world.
    pub(crate) fn end() -> World {
        WORLD.take().expect("a world was begun")
    }

    pub(crate) fn now(&self) -> Micros {
        micros(self.began.elapsed())
    }

    pub(crate) fn add_node(&mut self, server: Server) {
        self.nodes.push(Node {
            server,
            is_down: false,
            stalled_until: 0,
            unread: VecDeque::new(),
            due: None,
        });
    }

    pub(crate) fn add_process(&mut self, clock: Clock) -> ProcessId {
        self.processes.push(Process {
            clock,
            life: Life::Runs,
            parked: Vec::new(),
            went_on: 0,
        });
        self.processes.len() - 1
    }

    /// Whether the tasks of a process may run now. If it is stopped, `waker` is woken when it continues.
    pub(crate) fn may_run(&mut self, process: ProcessId, waker: &Waker) -> bool {
        let process = &mut self.processes[process];
        if process.life == Life::Stopped {
            process.parked.push(waker.clone());
        }
        process.life == Life::Runs
    }

    pub(crate) fn at(&mut self, when: Micros, event: Event) {
        self.events_ever += 1;
        self.events.insert((when, self.events_ever), event);
        self.changed.notify_one();
    }

    /// Wakes [`go_on`].
    pub(crate) fn wake(&mut self) {
        self.changed.notify_one();
    }

    pub(crate) fn fail(&mut self, why: String) {
        if self.failure.is_none() {
            self.note(|| format!("WRONG: {why}"));
            self.failure = Some(why);
        }
        self.changed.notify_one();
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.3} ms  {}", now as f64 / 1000.0, line()));
        }
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// Runs the events that are due. Returns the moment of the next one.
    fn step(&mut self) -> Option<Micros> {
        let now = self.now();
        while let Some((&(when, _), _)) = self.events.first_key_value()
            && when <= now
            && self.failure.is_none()
        {
            let (_, event) = self.events.pop_first().expect("there is one");
            self.happen(event, now);
        }
        self.events.first_key_value().map(|((when, _), _)| *when)
    }

    fn happen(&mut self, event: Event, now: Micros) {
        match event {
            Event::Arrive(conn, words) => self.arrive(conn, words, now),
            Event::Late(node, words) => self.arrive_late(node, words, now),
            Event::Deliver(conn, bytes) => self.deliver(conn, bytes),
            Event::Cut(conn) => self.cut(conn),
            Event::Closed(conn) => self.on_closed(conn),
            Event::Due(node) => self.on_due(node, now),
            Event::Stall(node, until) => self.stall(node, until, now),
            Event::ReadOn(node) => self.read_on(node, now),
            Event::Down(node) => {
                self.note(|| format!("node {node} goes down"));
                self.nodes[node].is_down = true;
                self.cut_all_of(node);
            }
            Event::Up { node, data, grace } => self.come_up(node, data, grace, now),
            Event::Stop(process) if self.processes[process].life == Life::Runs => {
                self.note(|| format!("process {process} is stopped"));
                self.processes[process].life = Life::Stopped;
            }
            Event::GoOn(process) if self.processes[process].life == Life::Stopped => {
                self.note(|| format!("process {process} goes on"));
                let process = &mut self.processes[process];
                process.life = Life::Runs;
                process.went_on = now;
                std::mem::take(&mut process.parked)
                    .into_iter()
                    .for_each(Waker::wake);
            }
            Event::Stop(_) | Event::GoOn(_) => {}
            Event::Replicate(node) => self.nodes[node].server.replicate(),
            Event::Kill(process) => {
                self.note(|| format!("process {process} is killed"));
                self.processes[process].life = Life::Dead;
                self.close_all_of(process);
            }
            Event::Part(process, node) => self.part(process, node),
            Event::Join(process, node) => {
                self.note(|| format!("process {process} reaches node {node} again"));
                self.parted.remove(&(process, node));
            }
        }
    }

    fn come_up(&mut self, number: NodeId, data: Data, grace: u64, now: Micros) {
        self.note(|| format!("node {number} comes up with data: {data:?}"));
        // It may run already: of two restarts the second one began while it was down.
        self.cut_all_of(number);
        let run_id = self.names.next();
        let node = &mut self.nodes[number];
        let local = node.server.clock.at(now);
        node.server.restart(data, grace, run_id, local);
        (node.is_down, node.due, node.stalled_until) = (false, None, now);
        node.unread.clear();
        self.run_due(number, now);
    }

    fn stall(&mut self, number: NodeId, until: Micros, now: Micros) {
        let node = &mut self.nodes[number];
        let from = node.stalled_until.max(now);
        node.server.was_stalled(until.saturating_sub(from) / 1_000);
        node.stalled_until = node.stalled_until.max(until);
        self.note(|| format!("node {number} stalls"));
        self.at(until, Event::ReadOn(number));
    }

    fn read_on(&mut self, number: NodeId, now: Micros) {
        let node = &mut self.nodes[number];
        if node.stalled_until > now {
            return;
        }
        let unread = std::mem::take(&mut node.unread);
        self.note(|| format!("node {number} goes on"));
        unread.into_iter().for_each(|event| self.happen(event, now));
    }

    fn on_due(&mut self, number: NodeId, now: Micros) {
        let node = &mut self.nodes[number];
        if node.due.is_none_or(|due| due > now) {
            return;
        }
        node.due = None;
        if !node.is_down {
            self.run_due(number, now);
        }
    }

    /// Runs what is due at a server, sends its replies, and schedules its next run.
    pub(crate) fn run_due(&mut self, number: NodeId, now: Micros) {
        let node = &mut self.nodes[number];
        if node.is_down {
            return;
        }
        if node.stalled_until > now {
            let until = node.stalled_until;
            node.due = Some(until);
            return self.at(until, Event::Due(number));
        }
        let next = node.server.on_time(node.server.clock.at(now));
        let replies = std::mem::take(&mut node.server.out);
        let wrong = node.server.wrong.take();
        let next = next.map(|millis| node.server.clock.moment_of(ms(millis)) + 1);
        if let Some(next) = next.map(|next| next.max(now + 1))
            && node.due.is_none_or(|due| next < due)
        {
            node.due = Some(next);
            self.at(next, Event::Due(number));
        }
        for (conn, reply) in replies {
            self.answer(conn, reply, now);
        }
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }
}

pub(crate) fn micros(duration: Duration) -> Micros {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Reads or changes the world.
pub(crate) fn with<T>(act: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(|world| act(world.as_mut().expect("a world was begun")))
}

pub(crate) fn note(line: impl FnOnce() -> String) {
    with(|world| world.note(line));
}

pub(crate) fn fail(why: String) {
    with(|world| world.fail(why));
}

/// Runs `act` as that process.
pub(crate) fn inside<T>(process: ProcessId, act: impl FnOnce() -> T) -> T {
    let before = INSIDE.replace(Some(process));
    let result = act();
    INSIDE.set(before);
    result
}

/// The process whose code runs.
pub(crate) fn this_process() -> ProcessId {
    INSIDE.get().expect("the code of some process runs")
}

/// Whether there is a world, and the code of a process runs in it.
pub(crate) fn is_inside() -> bool {
    INSIDE.get().is_some() && WORLD.with_borrow(Option::is_some)
}

/// Runs events until `is_over` returns true, which it checks after each moment. `false` if `limit` comes first.
pub(crate) async fn go_on(limit: Micros, mut is_over: impl FnMut() -> bool) -> bool {
    loop {
        let (next, now, began, changed) = with(|world| {
            let next = world.step();
            (next, world.now(), world.began, world.changed.clone())
        });
        if is_over() {
            return true;
        }
        if now >= limit {
            return false;
        }
        let until = began + Duration::from_micros(next.unwrap_or(limit).min(limit));
        let _ = tokio::time::timeout_at(until, changed.notified()).await;
    }
}
