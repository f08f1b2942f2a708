//! Runs a program on the locks and on the model, step by step, and compares everything visible.

use std::collections::BTreeMap;

use mortise_core::{Instant, Lease, Lock, Stake, TokenClock};

use super::perform::{Outcome, as_hold, hold_of, owner, perform, stakes};
use super::program::{KEYS, Program, Step};
use super::reference::{Call, Hold, Reference, Reply, Verb};
use super::replica::{News, Replica};

const MAX_TOKEN: u64 = (1 << 53) - 1;

struct World {
    locks: Vec<Lock>,
    tokens: TokenClock,
    model: Reference,
    replicas: [Replica; 2],
    now: u64,
    wall: u64,
    /// Every token granted.
    granted: Vec<u64>,
    /// New holds less ended and released ones, by key and owner.
    ledger: BTreeMap<(usize, Vec<u8>), i64>,
}

pub(crate) fn run(program: &Program) {
    let mut world = World {
        locks: vec![Lock::free(); KEYS],
        tokens: TokenClock::new(),
        model: Reference::default(),
        replicas: [
            Replica::hearing_all(program.skew),
            Replica::with_a_bad_line(program.skew),
        ],
        now: program.boot,
        wall: program.wall,
        granted: Vec::new(),
        ledger: BTreeMap::new(),
    };
    for step in &program.steps {
        world.step(step);
    }
}

impl World {
    fn step(&mut self, step: &Step) {
        let Self { now, wall, .. } = *self;
        let passed = step.pause.millis(&self.model, step.key, now);
        self.now = now + passed;
        self.wall = (wall + passed * 1_000)
            .saturating_add_signed(step.wall)
            .min(MAX_TOKEN);
        self.compare_states();

        let call = step
            .deed
            .call(&self.model, step.key, self.wall, &self.granted);
        let before = self.locks[step.key].clone();
        let tokens_before = self.tokens.clone();
        let ended = self.model.end(step.key, self.now);
        let floor = self.highest_token();
        let reply = self.model.answer(step.key, self.now, self.wall, &call);
        let outcome = self.call(step.key, &call);

        compare_outcome(&outcome, &ended, reply, &call);
        self.compare_states();
        self.check_tokens(floor, reply, &call);
        self.check_ledger(step.key, &outcome, &call);
        let after = self.locks[step.key].clone();
        self.check_what_changed(&before, &after, reply, &call);
        self.check_that_only_the_holds_matter(&before, &tokens_before, &after, &outcome, &call);
        self.check_repetition(&after, reply, &call);
        self.check_undo(&before, &after, reply, &call);
        self.check_pass(&before, &after, reply, &call);
        let news = News {
            key: step.key,
            primary: &after,
            ended: &outcome.0,
            call: &call,
            last: self.tokens.last(),
            now: self.now,
            wall: self.wall,
            heard: step.heard,
        };
        for replica in &mut self.replicas {
            replica.hear(&news);
        }
    }

    fn call(&mut self, key: usize, call: &Call) -> Outcome {
        perform(
            &mut self.locks[key],
            &mut self.tokens,
            self.now,
            self.wall,
            call,
        )
    }

    fn highest_token(&self) -> u64 {
        let held = self.model.holds.iter().map(|hold| hold.token).max();
        let granted = self.granted.iter().copied().max();
        held.max(granted).unwrap_or(0)
    }

    /// Compares all holds with all their fields, and every view of them.
    fn compare_states(&self) {
        assert_eq!(self.tokens.last(), self.model.last, "last token");
        for (key, lock) in self.locks.iter().enumerate() {
            let mut expected: Vec<Hold> = self
                .model
                .holds
                .iter()
                .filter(|hold| hold.key == key)
                .cloned()
                .collect();
            expected.sort_by(|a, b| a.owner.cmp(&b.owner));
            let actual: Vec<Hold> = lock.holds().map(|(o, s)| as_hold(key, &o, &s)).collect();
            assert_eq!(actual, expected, "holds on key {key}");
            for hold in &expected {
                let found = lock.hold(owner(&hold.owner)).map(|stake| stake.total());
                assert_eq!(found, Some(hold.write + hold.read));
            }
            assert!(lock.hold(owner(b"nobody")).is_none());
            assert_eq!(lock.len(), expected.len());
            assert_eq!(lock.is_free(), expected.is_empty());
            assert_eq!(lock.is_empty(), expected.is_empty());
            let first = expected.iter().map(|hold| hold.ends).min();
            assert_eq!(lock.next_deadline().map(Instant::as_millis), first);
            let mode = self.model.mode(key, self.now);
            let now = Instant::from_millis(self.now);
            assert_eq!(lock.mode(now), mode);
            let live = expected.iter().filter(|hold| hold.ends > self.now).count();
            assert_eq!(lock.live_len(now), live);
            assert_one_writer_alone(lock);
        }
    }

    /// A grant's token is larger than every one before, on any key; a re-entry's is the held one.
    fn check_tokens(&mut self, floor: u64, reply: Reply, call: &Call) {
        if let Reply::New(token) | Reply::Upgrade(token) | Reply::Passed(token) = reply {
            assert!(token > floor, "{token} granted after {floor}");
            let least = call.fence.filter(|_| call.verb == Verb::Acquire);
            assert!(least.is_none_or(|least| token >= least));
            self.granted.push(token);
        }
    }

    /// Checks that every hold that began ended once (expired or released) or is still there.
    fn check_ledger(&mut self, key: usize, (ended, reply): &Outcome, call: &Call) {
        for (owner, _) in ended {
            *self.ledger.entry((key, owner.clone())).or_default() -= 1;
        }
        let changes: &[i64] = match reply {
            Reply::New(_) => &[1],
            Reply::Left(0, true) => &[-1],
            Reply::Passed(_) => &[-1, 1],
            _ => &[],
        };
        for (owner, change) in call.owners().into_iter().zip(changes) {
            *self.ledger.entry((key, owner.to_vec())).or_default() += change;
        }
        for ((key, name), balance) in &self.ledger {
            let there = self.locks[*key].hold(owner(name)).is_some();
            assert_eq!(*balance, i64::from(there), "{name:?} on key {key}");
        }
    }

    /// Checks that a refusal changes nothing, not even the serial, and that a grant changes only its
    /// own hold.
    fn check_what_changed(&self, before: &Lock, after: &Lock, reply: Reply, call: &Call) {
        let mut before = before.clone();
        before.at(Instant::from_millis(self.now), |_, _| {});
        let refused = !matches!(
            reply,
            Reply::New(_)
                | Reply::Reentry(_)
                | Reply::Upgrade(_)
                | Reply::Left(..)
                | Reply::Rest(..)
                | Reply::Token(_)
                | Reply::Passed(_)
        );
        if refused {
            assert_eq!(stakes(&before), stakes(after));
            return;
        }
        let others = |lock| {
            let mut all = stakes(lock);
            all.retain(|(owner, _)| !call.owners().contains(&&owner[..]));
            all
        };
        assert_eq!(others(&before), others(after));
        let mine = call.owner().unwrap_or_default();
        if let (Some(before), Some(after)) = (before.hold(owner(mine)), after.hold(owner(mine))) {
            if call.verb == Verb::Revoke {
                let revoked = true;
                assert_eq!(after, Stake { revoked, ..before }, "nothing but the mark");
            } else {
                assert_ne!(before.touched, after.touched);
            }
        }
    }

    /// Checks that a fresh lock with the same holds behaves the same, whatever this one went through.
    fn check_that_only_the_holds_matter(
        &self,
        before: &Lock,
        tokens: &TokenClock,
        after: &Lock,
        outcome: &Outcome,
        call: &Call,
    ) {
        let mut rebuilt = Lock::free();
        let mut holds = stakes(before);
        holds.reverse();
        for (name, stake) in &holds {
            rebuilt.put(owner(name), *stake);
        }
        let mut tokens = tokens.clone();
        let same = perform(&mut rebuilt, &mut tokens, self.now, self.wall, call);
        assert_eq!(same, *outcome);
        assert_eq!(stakes(&rebuilt), stakes(after));
        assert_eq!(tokens.last(), self.tokens.last());
    }

    /// Checks that a repeated pass finds no hold, and that undoing an earlier grant leaves the new hold.
    fn check_pass(&self, before: &Lock, after: &Lock, reply: Reply, call: &Call) {
        let (Reply::Passed(_), Some(old), [_, new]) = (reply, call.owner(), &call.owners()[..])
        else {
            return;
        };
        let granted = before.hold(owner(old)).expect("it was passed on").touched;
        let mut later = after.clone();
        let mut tokens = self.tokens.clone();
        let (_, again) = perform(&mut later, &mut tokens, self.now, self.wall, call);
        assert_eq!(again, Reply::Null);
        let mut live = later.at(Instant::from_millis(self.now), |_, _| {});
        assert!(!live.undo(owner(old), granted, None));
        assert!(!live.undo(owner(new), granted, None));
        assert_eq!(stakes(&later), stakes(after));
        assert_eq!(tokens.last(), self.tokens.last());
    }

    /// Checks that with HOLDS a repeated call changes nothing.
    fn check_repetition(&self, after: &Lock, reply: Reply, call: &Call) {
        let token = match reply {
            Reply::New(token) | Reply::Reentry(token) | Reply::Upgrade(token)
                if call.holds.is_some() =>
            {
                token
            }
            _ => return,
        };
        let mut twice = after.clone();
        let mut tokens = self.tokens.clone();
        let (ended, reply) = perform(&mut twice, &mut tokens, self.now, self.wall, call);
        assert_eq!((ended.len(), reply), (0, Reply::Reentry(token)));
        let holds =
            |lock: &Lock| -> Vec<Hold> { lock.holds().map(|(o, s)| as_hold(0, &o, &s)).collect() };
        assert_eq!(holds(&twice), holds(after));
        assert_eq!(tokens.last(), self.tokens.last());
    }

    /// Checks that undoing a grant restores the hold as it was, except that a count which the grant had lowered stays lower. A
    /// grant whose hold was touched since stays, and a hold that ended meanwhile does not come back.
    fn check_undo(&self, before: &Lock, after: &Lock, reply: Reply, call: &Call) {
        let (Reply::New(_) | Reply::Reentry(_) | Reply::Upgrade(_), Some(name)) =
            (reply, call.owner())
        else {
            return;
        };
        let now = Instant::from_millis(self.now);
        let (mut expected, mut undone) = (before.clone(), after.clone());
        expected.at(now, |_, _| {});
        let had = expected.hold(owner(name));
        let granted = after.hold(owner(name)).expect("granted");
        if let Some(had) = had {
            let lowered = Stake {
                write: had.write.min(granted.write),
                read: had.read.min(granted.read),
                ..had
            };
            expected.put(owner(name), lowered);
        }
        assert!(
            undone
                .at(now, |_, _| {})
                .undo(owner(name), granted.touched, had)
        );
        assert_eq!(stakes(&undone), stakes(&expected));
        assert_eq!(undone.next_deadline(), expected.next_deadline());

        if let Some(had) = had {
            let mut late = after.clone();
            let mut live = late.at(now, |_, _| {});
            let over = Stake {
                deadline: now,
                ..had
            };
            assert!(live.undo(owner(name), granted.touched, Some(over)));
            assert_eq!(live.hold(owner(name)), None);
        }

        // A revocation does not touch the hold. If the hold outlives the grant, so does the revocation.
        let mut revoked = after.clone();
        let mut live = revoked.at(now, |_, _| {});
        assert!(live.revoke(owner(name), None).is_some());
        assert!(live.undo(owner(name), granted.touched, had));
        let still = expected.hold(owner(name)).map(|had| Stake {
            revoked: true,
            ..had
        });
        assert_eq!(live.hold(owner(name)), still);

        let mut touched = after.clone();
        let mut live = touched.at(now, |_, _| {});
        let lease = Lease::from_millis(1).expect("a lease");
        live.renew(owner(name), lease, None);
        let renewed = live.hold(owner(name));
        assert!(!live.undo(owner(name), granted.touched, had));
        assert_eq!(touched.hold(owner(name)), renewed);
    }
}

/// Checks that ended holds are reported once, the earliest first; those that end together in any order.
fn compare_outcome((told, reply): &Outcome, ended: &[Hold], expected: Reply, call: &Call) {
    assert_eq!(*reply, expected, "reply to {call:?}");
    assert!(told.is_sorted_by_key(|(_, stake)| stake.deadline));
    let name = |hold: &Hold| (hold.ends, hold.owner.clone());
    let key = ended.first().map_or(0, |hold| hold.key);
    let mut told: Vec<Hold> = told
        .iter()
        .map(|(owner, stake)| hold_of(key, owner, stake))
        .collect();
    told.sort_by_key(name);
    let mut ended = ended.to_vec();
    ended.sort_by_key(name);
    assert_eq!(told, ended, "ended holds");
}

fn assert_one_writer_alone(lock: &Lock) {
    for (_, stake) in lock.holds() {
        assert!(stake.total() > 0);
        assert!(stake.write == 0 || lock.len() == 1);
    }
}
