//! Runs programs, and judges each answer and each state by the letter of the contract.

use super::Op;
use super::scene::{Place, Scene, Waits};
use super::server::{Answer, KEYS, OWNERS, Server, task_of};

/// A program that runs, with deadlocks found and cycles ended.
pub(super) struct Run {
    server: Server,
    /// Tasks wait for each other, and nobody has to notice: a hold was passed on. Or owners of one task met at a key: "a task's own holds and
    /// requests on the same key are no deadlock", and then no order of requests may end a cycle.
    may_be_stuck: bool,
}

impl Run {
    /// `apart`: owners of one task do not meet at a key.
    pub(super) fn new(apart: bool) -> Self {
        let mut server = Server::new(false);
        (server.upgrades, server.apart) = (true, apart);
        Self {
            server,
            may_be_stuck: false,
        }
    }

    /// Checks that no task waits for itself, that each reported deadlock is one, that nobody is overtaken but to end a cycle, and that all
    /// are served in the end.
    pub(super) fn check(mut self, ops: &[Op]) {
        for op in ops {
            self.step(*op);
            if self.may_be_stuck {
                break;
            }
        }
        if self.server.apart && !self.may_be_stuck {
            self.serve_those_who_wait_for_nobody();
        }
        self.serve_all();
    }

    fn step(&mut self, op: Op) {
        let before = Scene::of(&self.server);
        let answer = self.server.run(op);
        let wait = self.server.last_wait.take();
        let after = Scene::of(&self.server);
        self.server.assert_settled(op);
        let expected = before.with(op, wait.as_ref());
        let is_deadlock = expected.any_closed(Waits::Real);
        let is_cycle = expected.any_closed(Waits::All);
        if !is_cycle {
            assert_not_overtaken(op, &expected, &after);
        }
        let is_passed = matches!(op, Op::Pass { .. });
        self.may_be_stuck = is_passed && is_deadlock || is_cycle && !self.server.apart;
        if self.may_be_stuck {
            return;
        }
        let is_refused = answer == Answer::Deadlock;
        assert_eq!(is_refused, is_deadlock, "{op:?}: a deadlock? {expected:?}");
        if let Some(edge) = after.cycle(Waits::All) {
            panic!("{op:?}: {edge:?} is on a cycle in {after:?}");
        }
    }

    /// A task holds until it waits for nothing. Then it releases all.
    fn serve_those_who_wait_for_nobody(&mut self) {
        while !self.server.queues().is_empty() {
            let scene = Scene::of(&self.server);
            let waits = |owner: usize| {
                let mut places = scene.0.iter().flat_map(|key| &key.queue);
                places.any(|place| task_of(place.owner) == task_of(owner))
            };
            let mut released = false;
            for (key, scene) in scene.0.iter().enumerate() {
                for (owner, _) in &scene.holders {
                    if !waits(*owner) {
                        self.step(Op::Release { owner: *owner, key });
                        released = true;
                    }
                }
            }
            assert!(released, "tasks wait for each other for ever: {scene:?}");
        }
    }

    /// All holders release, and all waiters are served.
    fn serve_all(&mut self) {
        for _ in 0..OWNERS * KEYS * OWNERS {
            for key in 0..KEYS {
                for (owner, _) in self.server.holders(key) {
                    self.server.run(Op::Release { owner, key });
                }
            }
            if self.server.queues().is_empty() {
                return;
            }
        }
        panic!("somebody waits for ever: {:?}", Scene::of(&self.server));
    }
}

/// Of two requests that waited at a key, or were about to, the second one has not got ahead of the first.
fn assert_not_overtaken(op: Op, before: &Scene, after: &Scene) {
    for (key, (before, after)) in before.0.iter().zip(&after.0).enumerate() {
        let stands = |place: &Place| {
            let mut queue = after.queue.iter();
            queue.position(|other| other.owner == place.owner)
        };
        let holds = |place: &Place| {
            let mut holders = after.holders.iter();
            holders.any(|(holder, _)| *holder == place.owner)
        };
        for (at, second) in before.queue.iter().enumerate() {
            for first in &before.queue[..at] {
                let Some(place) = stands(first) else { continue };
                let is_ahead = match stands(second) {
                    Some(other) => other < place,
                    None => holds(second),
                };
                assert!(
                    !is_ahead,
                    "{op:?}: {second:?} has overtaken {first:?} at {key}"
                );
            }
        }
    }
}
