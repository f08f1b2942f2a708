//! Random programs of boxes and letters, which run on the contract's model too.

use std::rc::Rc;

use mortise_core::mail::{BoxId, Leaving, Letter, Outcome, Posted};
use mortise_core::{
    Db, Homes, Instant, KeyId, KeyList, Lease, Mail, Mode, OwnerRef, Token, WaiterId,
};
use proptest::prelude::*;

use super::reference::{LOST, Reference, Sent, UNASKED, UNREAD};

const BOXES: u8 = 3;
const OWNERS: u8 = 3;
const WAITERS: u64 = 6;

/// The next step of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Queue {
        waiter: u64,
        mailbox: u8,
    },
    Forget {
        waiter: u64,
    },
    Post {
        waiter: u64,
        letter: Kind,
    },
    Ask {
        mailbox: u8,
        forgets: Option<u8>,
    },
    Tell {
        mailbox: u8,
        count: usize,
    },
    Close {
        mailbox: u8,
    },
    CloseAll,
    LetLeave {
        pieces: u8,
    },
    Pass {
        ms: u64,
    },
    /// The connection of the newest LOCK.MAIL is lost.
    Lose {
        mailbox: u8,
    },
    Overdue,
}

/// The parts of a delivered letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) key: u8,
    pub(crate) owner: u8,
    pub(crate) write: bool,
    /// 0 granted, 1 denied, 2 refused.
    pub(crate) result: u8,
}

pub(super) fn ops() -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 1..60)
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let kind =
        (0..2_u8, 0..OWNERS, any::<bool>(), 0..3_u8).prop_map(|(key, owner, write, result)| Kind {
            key,
            owner,
            write,
            result,
        });
    prop_oneof![
        5 => (0..WAITERS, 0..BOXES).prop_map(|(waiter, mailbox)| Op::Queue { waiter, mailbox }),
        1 => (0..WAITERS).prop_map(|waiter| Op::Forget { waiter }),
        6 => (0..WAITERS, kind).prop_map(|(waiter, letter)| Op::Post { waiter, letter }),
        3 => (0..BOXES, proptest::option::of(0..5_u8)).prop_map(|(mailbox, forgets)| Op::Ask { mailbox, forgets }),
        3 => (0..BOXES, 1..4_usize).prop_map(|(mailbox, count)| Op::Tell { mailbox, count }),
        1 => (0..BOXES).prop_map(|mailbox| Op::Close { mailbox }),
        1 => Just(Op::CloseAll),
        2 => (1..6_u8).prop_map(|pieces| Op::LetLeave { pieces }),
        2 => (1..50_u64).prop_map(|ms| Op::Pass { ms }),
        2 => (0..BOXES).prop_map(|mailbox| Op::Lose { mailbox }),
        3 => Just(Op::Overdue),
    ]
}

#[derive(Default)]
struct Run {
    mail: Mail,
    model: Reference,
    now: u64,
    /// The last number of a box or a letter.
    number: u64,
    /// All boxes were closed together, and may not be empty yet.
    closed_all: bool,
}

pub(crate) fn owner(number: u8) -> String {
    format!("owner{number}")
}

pub(super) fn key(number: u8) -> KeyId {
    KeyId {
        db: Db(0),
        name: Rc::from([number]),
    }
}

pub(super) fn letter(kind: Kind, number: u64) -> Letter {
    let name = owner(kind.owner);
    Letter {
        // The model knows a letter by its number.
        waiter: WaiterId(number),
        keys: KeyList::One(key(kind.key)),
        owner: OwnerRef::new(name.as_bytes())
            .expect("in bounds")
            .to_owner(),
        mode: if kind.write { Mode::Write } else { Mode::Read },
        outcome: match kind.result {
            0 => Outcome::Granted {
                token: Token::new(number).expect("in bounds"),
                lease: Lease::from_millis(1_000).expect("not 0"),
                at: Instant::from_millis(0),
            },
            1 => Outcome::Denied,
            _ => Outcome::Refused("DEADLOCK".into()),
        },
    }
}

impl Run {
    fn now(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    fn after(&self, ms: u64) -> Instant {
        self.now().after(ms)
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// Finds the box, or makes it.
    fn open(&mut self, mailbox: u8) -> BoxId {
        let name = [mailbox];
        assert_eq!(
            self.mail.find(&name, b"other").is_err(),
            self.model.since(mailbox).is_some()
        );
        let found = self.mail.find(&name, b"user").expect("of this user");
        assert_eq!(found.map(|id| id.0), self.model.since(mailbox));
        found.unwrap_or_else(|| {
            let (since, until) = (self.next(), self.after(UNASKED));
            self.model.make(mailbox, since, self.now);
            self.mail.make(&name, b"user", since, until)
        })
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Queue { waiter, mailbox } => {
                let id = self.open(mailbox);
                self.mail.expect(WaiterId(waiter), id, 1);
                self.model.expect(waiter, mailbox);
            }
            Op::Forget { waiter } => {
                let forgot = self.mail.forget_request(WaiterId(waiter));
                assert_eq!(forgot, self.model.forget(waiter));
            }
            Op::Post {
                waiter,
                letter: kind,
            } => self.post(waiter, kind),
            Op::Ask { mailbox, forgets } => {
                let id = self.open(mailbox);
                let after = forgets.map(|nth| self.model.number_of(mailbox, nth));
                let undelivered = self
                    .mail
                    .ask(id, after, self.after(UNASKED), self.after(UNREAD));
                let undelivered: Vec<u64> = undelivered.iter().map(|id| id.0).collect();
                assert_eq!(undelivered, self.model.ask(mailbox, after, self.now));
            }
            Op::Tell { mailbox, count } => {
                let (id, unread_until) = (self.open(mailbox), self.after(UNREAD));
                let delivered: Vec<u64> = self
                    .mail
                    .deliver(id, count, unread_until, &Homes::default())
                    .map(|delivered| delivered.number)
                    .collect();
                assert_eq!(delivered, self.model.deliver(mailbox, count, self.now));
            }
            Op::Close { mailbox } => {
                if let Some(since) = self.model.since(mailbox) {
                    self.mail.close(BoxId(since));
                    self.model.close(since);
                }
            }
            Op::CloseAll => {
                self.closed_all = true;
                self.mail.close_all();
                self.model.close_all();
            }
            Op::LetLeave { pieces } => {
                for _ in 0..pieces {
                    self.let_leave();
                }
            }
            Op::Pass { ms } => self.now += ms,
            Op::Lose { mailbox } => {
                let id = self.open(mailbox);
                self.mail.set_lost(id, self.after(LOST));
                self.model.set_lost(mailbox, self.now);
            }
            Op::Overdue => {
                let (overdue, expected) =
                    (self.mail.overdue(self.now()), self.model.overdue(self.now));
                // Boxes that were closed together are emptied first.
                assert!(overdue.is_some() || expected.is_empty() || self.closed_all);
                assert!(overdue.is_none_or(|id| expected.contains(&id.0)));
            }
        }
    }

    fn post(&mut self, waiter: u64, kind: Kind) {
        // An answer that becomes no letter leaves its number to the next.
        let number = self.number + 1;
        let posted = self.mail.post(
            WaiterId(waiter),
            number,
            letter(kind, number),
            &Homes::default(),
        );
        let expected = self.model.post(waiter, number);
        match (posted, expected) {
            (Posted::In(id), Sent::In(since)) => {
                assert_eq!(id.0, since);
                self.number = number;
            }
            (Posted::Returned, Sent::Returned) | (Posted::NotByMail, Sent::NotByMail) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Frees one part of a closed box. False if there is none.
    fn let_leave(&mut self) -> bool {
        match self.mail.next_leaving() {
            None => {
                assert!(self.model.has_left());
                self.closed_all = false;
                return false;
            }
            Some(Leaving::Request(id)) => self.model.request_leaves(id.0),
            Some(Leaving::Undelivered(id)) => self.model.undelivered_leaves(id.0),
            Some(Leaving::Letter) => {}
        }
        true
    }

    fn compare(&self) {
        assert_eq!(self.mail.boxes(), self.model.boxes());
        for mailbox in 0..BOXES {
            if let Some(since) = self.model.since(mailbox) {
                assert_eq!(self.mail.box_len(BoxId(since)), self.model.box_len(mailbox));
                assert_eq!(
                    self.mail.has_letters_after(BoxId(since), None),
                    self.model.has_letters(mailbox)
                );
            }
        }
        for waiter in 0..WAITERS {
            assert_eq!(
                self.mail.box_of(WaiterId(waiter)).map(|id| id.0),
                self.model.box_of(waiter)
            );
        }
    }
}

pub(crate) fn run(ops: Vec<Op>) {
    let mut run = Run::default();
    for op in ops {
        run.step(op);
        run.compare();
    }
    run.mail.close_all();
    run.model.close_all();
    while run.let_leave() {}
    assert!(run.mail.is_empty());
}
