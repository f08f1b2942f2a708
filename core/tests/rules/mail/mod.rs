//! Boxes and letters, compared with a naive model of the contract: random programs run on both, and every answer must agree.
//! `PROPTEST_CASES` sets how many programs.

mod reference;

use std::rc::Rc;

use mortise_core::mail::{
    BoxId, Leaving, Letter, NotYours, Outcome, Posted, UndeliveredLetter, Undo, age,
};
use mortise_core::{
    Db, Instant, KeyId, KeyList, Lease, Mail, Mode, OwnerRef, Stake, Token, Touched, WaiterId,
};
use proptest::prelude::*;

use reference::{Reference, Sent};

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
    /// Delivers to a client that never reads it.
    TellInVain {
        mailbox: u8,
        count: usize,
    },
    Withdraw {
        key: u8,
        owner: u8,
    },
    AskAgain {
        key: u8,
        owner: u8,
        write: bool,
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
    Overdue {
        asked: u64,
        delivered: u64,
    },
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

fn ops() -> impl Strategy<Value = Vec<Op>> {
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
        1 => (0..BOXES, 1..4_usize).prop_map(|(mailbox, count)| Op::TellInVain { mailbox, count }),
        1 => (0..2_u8, 0..OWNERS).prop_map(|(key, owner)| Op::Withdraw { key, owner }),
        1 => (0..2_u8, 0..OWNERS, any::<bool>()).prop_map(|(key, owner, write)| Op::AskAgain { key, owner, write }),
        1 => (0..BOXES).prop_map(|mailbox| Op::Close { mailbox }),
        1 => Just(Op::CloseAll),
        2 => (1..6_u8).prop_map(|pieces| Op::LetLeave { pieces }),
        2 => (1..50_u64).prop_map(|ms| Op::Pass { ms }),
        2 => (0..80_u64, 0..80_u64).prop_map(|(asked, delivered)| Op::Overdue { asked, delivered }),
    ]
}

#[derive(Default)]
struct Run {
    mail: Mail,
    model: Reference,
    now: u64,
    /// The last number of a box or a letter.
    number: u64,
}

pub(crate) fn owner(number: u8) -> String {
    format!("owner{number}")
}

fn key(number: u8) -> KeyId {
    KeyId {
        db: Db(0),
        name: Rc::from([number]),
    }
}

fn letter(kind: Kind, number: u64) -> Letter {
    let name = owner(kind.owner);
    Letter {
        keys: None,
        key: key(kind.key),
        owner: OwnerRef::new(name.as_bytes())
            .expect("in bounds")
            .to_owner(),
        mode: if kind.write { Mode::Write } else { Mode::Read },
        outcome: match kind.result {
            0 => Outcome::Granted {
                token: Token::new(number).expect("in bounds"),
                lease: Lease::from_millis(1_000).expect("not 0"),
                at: Instant::from_millis(0),
                undo: Undo {
                    granted: Touched::by(number),
                    token: Token::new(number).expect("in bounds"),
                    before: None,
                },
            },
            1 => Outcome::Denied,
            _ => Outcome::Refused("DEADLOCK".into()),
        },
    }
}

/// The number of the grant to undo.
fn returned(undelivered: &UndeliveredLetter) -> u64 {
    undelivered.undo.token.get()
}

impl Run {
    fn now(&self) -> Instant {
        Instant::from_millis(self.now)
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
            let (since, now) = (self.next(), self.now());
            self.model.make(mailbox, since, self.now);
            self.mail.make(&name, b"user", since, now)
        })
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Queue { waiter, mailbox } => {
                let id = self.open(mailbox);
                self.mail.expect(WaiterId(waiter), id);
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
                self.mail.ask(id, after, self.now());
                self.model.ask(mailbox, after, self.now);
            }
            Op::TellInVain { mailbox, count } => {
                let (id, now) = (self.open(mailbox), self.now());
                let before = self.mail.delivered(id);
                self.mail.deliver(id, count, now).for_each(drop);
                self.mail.undeliver(id, before);
            }
            Op::Tell { mailbox, count } => {
                let (id, now) = (self.open(mailbox), self.now());
                let delivered: Vec<u64> = self
                    .mail
                    .deliver(id, count, now)
                    .map(|delivered| delivered.number)
                    .collect();
                assert_eq!(delivered, self.model.deliver(mailbox, count, self.now));
            }
            Op::Withdraw { key: k, owner: o } => {
                let name = owner(o);
                let name = OwnerRef::new(name.as_bytes()).expect("in bounds");
                assert_eq!(
                    self.mail.withdraw(&key(k), name).any,
                    self.model.withdraw(k, o)
                );
            }
            Op::AskAgain {
                key: k,
                owner: o,
                write,
            } => {
                let name = owner(o);
                let name = OwnerRef::new(name.as_bytes()).expect("in bounds");
                let mode = if write { Mode::Write } else { Mode::Read };
                self.mail.withdraw_refusal(&key(k), None, name, mode);
                self.model.withdraw_refusal(k, o, write);
            }
            Op::Close { mailbox } => {
                if let Some(since) = self.model.since(mailbox) {
                    self.mail.close(BoxId(since));
                    self.model.close(since);
                }
            }
            Op::CloseAll => {
                self.mail.close_all();
                self.model.close_all();
            }
            Op::LetLeave { pieces } => {
                for _ in 0..pieces {
                    self.let_leave();
                }
            }
            Op::Pass { ms } => self.now += ms,
            Op::Overdue { asked, delivered } => {
                let before = |ms| Instant::from_millis(self.now.saturating_sub(ms));
                let overdue = self.mail.overdue(before(asked), before(delivered));
                let expected = self.model.overdue(
                    self.now.saturating_sub(asked),
                    self.now.saturating_sub(delivered),
                );
                assert_eq!(overdue.is_some(), !expected.is_empty());
                assert!(overdue.is_none_or(|id| expected.contains(&id.0)));
            }
        }
    }

    fn post(&mut self, waiter: u64, kind: Kind) {
        // An answer that becomes no letter leaves its number to the next.
        let number = self.number + 1;
        let posted = self
            .mail
            .post(WaiterId(waiter), number, letter(kind, number));
        let expected = self.model.post(waiter, number, kind);
        match (posted, expected) {
            (Posted::In(id), Sent::In(since)) => {
                assert_eq!(id.0, since);
                self.number = number;
            }
            (Posted::Returned(undelivered), Sent::Returned(back)) => {
                assert_eq!(undelivered.as_ref().map(returned), back);
            }
            (Posted::NotByMail(_), Sent::NotByMail) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Frees one part of a closed box. False if there is none.
    fn let_leave(&mut self) -> bool {
        match self.mail.next_leaving() {
            None => {
                assert!(self.model.has_left());
                return false;
            }
            Some(Leaving::Request(id)) => self.model.request_leaves(id.0),
            Some(Leaving::Grant(undelivered)) => self.model.grant_leaves(returned(&undelivered)),
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
    // Box by box, so that undelivered grants are undone. Closing all at once undoes none.
    for mailbox in 0..BOXES {
        run.step(Op::Close { mailbox });
        while run.let_leave() {}
    }
    run.mail.close_all();
    run.model.close_all();
    while run.let_leave() {}
    assert!(run.mail.is_empty());
}

proptest! {
    #![proptest_config(super::queues::config())]

    #[test]
    fn every_program_gives_the_same_on_the_boxes_and_the_model(ops in ops()) {
        run(ops);
    }
}

#[test]
fn a_letter_with_the_very_next_number_is_not_forgotten() {
    let mut mail = Mail::new();
    let now = Instant::from_millis(1);
    let id = mail.make(b"box", b"user", 1, now);
    let denied = Kind {
        key: 0,
        owner: 0,
        write: true,
        result: 1,
    };
    for (waiter, number) in [(1, 2), (2, 3)] {
        mail.expect(WaiterId(waiter), id);
        mail.post(WaiterId(waiter), number, letter(denied, number));
    }
    mail.ask(id, Some(2), now);
    let left: Vec<u64> = mail.deliver(id, 9, now).map(|it| it.number).collect();
    assert_eq!(left, [3]);
}

#[test]
fn a_box_of_another_user_is_not_found() {
    let mut mail = Mail::new();
    let id = mail.make(b"box", b"a", 1, Instant::from_millis(0));
    assert_eq!(mail.find(b"box", b"a"), Ok(Some(id)));
    assert_eq!(mail.find(b"box", b"b"), Err(NotYours));
    assert_eq!(mail.find(b"bo", b"b"), Ok(None));
}

#[test]
fn a_grant_is_undone_in_the_database_to_which_a_swap_moved_its_lock() {
    let mut mail = Mail::new();
    let id = mail.make(b"box", b"", 1, Instant::from_millis(0));
    let granted = Kind {
        key: 0,
        owner: 0,
        write: true,
        result: 0,
    };
    for (waiter, number) in [(1, 2), (2, 5)] {
        mail.expect(WaiterId(waiter), id);
        mail.post(WaiterId(waiter), number, letter(granted, number));
        mail.swap(Db(0), Db(7));
    }
    mail.close(id);
    let mut dbs = Vec::new();
    while let Some(piece) = mail.next_leaving() {
        if let Leaving::Grant(undelivered) = piece {
            dbs.push(undelivered.key.db.0);
        }
    }
    // The later grant was swapped once, the earlier one there and back.
    assert_eq!(dbs, [7, 0]);
}

#[test]
fn after_a_swap_a_grant_is_withdrawn_where_its_lock_is_and_a_refusal_where_its_queue_is() {
    let mut mail = Mail::new();
    let (id, now) = (
        mail.make(b"box", b"", 1, Instant::from_millis(0)),
        Instant::from_millis(0),
    );
    let kind = |result| Kind {
        key: 0,
        owner: 0,
        write: true,
        result,
    };
    for (waiter, result) in [(1, 0), (2, 1)] {
        mail.expect(WaiterId(waiter), id);
        mail.post(
            WaiterId(waiter),
            1 + waiter,
            letter(kind(result), 1 + waiter),
        );
    }
    let dbs =
        |mail: &mut Mail| -> Vec<u32> { mail.deliver(id, 9, now).map(|sent| sent.db.0).collect() };
    assert_eq!(dbs(&mut mail), [0, 0]);
    mail.swap(Db(0), Db(7));
    assert_eq!(dbs(&mut mail), [7, 0], "as they are sent again");
    let name = owner(0);
    let name = OwnerRef::new(name.as_bytes()).expect("in bounds");
    let at = |db| KeyId {
        db: Db(db),
        ..key(0)
    };
    assert!(mail.withdraw(&at(7), name).any);
    assert_eq!(dbs(&mut mail), [0]);
    assert!(!mail.withdraw(&at(7), name).any);
    mail.swap(Db(7), Db(0));
    mail.withdraw_refusal(&at(0), None, name, Mode::Write);
    assert_eq!(dbs(&mut mail), [0], "it was sent");
    assert!(mail.withdraw(&at(0), name).any);
    assert_eq!(mail.letters(), 0);
}

#[test]
fn a_letter_that_is_deleted_leaves_the_swap_as_it_is_for_the_others() {
    let now = Instant::from_millis(0);
    let mut mail = Mail::new();
    let id = mail.make(b"box", b"", 1, now);
    for key in [0, 1] {
        let (waiter, number) = (WaiterId(key.into()), 2 + u64::from(key));
        let kind = Kind {
            key,
            owner: 0,
            write: true,
            result: 0,
        };
        mail.expect(waiter, id);
        mail.post(waiter, number, letter(kind, number));
    }
    mail.swap(Db(0), Db(7));
    mail.ask(id, Some(2), now);
    assert_eq!(mail.letters(), 1);
    let name = owner(0);
    let name = OwnerRef::new(name.as_bytes()).expect("in bounds");
    let moved = KeyId {
        db: Db(7),
        ..key(1)
    };
    assert!(!mail.withdraw(&key(1), name).any);
    assert!(mail.withdraw(&moved, name).any);
    assert_eq!((mail.letters(), mail.requests(), mail.len()), (0, 0, 1));
}

#[test]
fn a_repeat_withdraws_the_refusal_of_the_same_keys_only() {
    let now = Instant::from_millis(0);
    let mut mail = Mail::new();
    let id = mail.make(b"box", b"", 1, now);
    let both = KeyList::new(vec![key(0), key(1)]);
    let kind = Kind {
        key: 0,
        owner: 0,
        write: true,
        result: 2,
    };
    let refusal = Letter {
        keys: Some(both.clone()),
        ..letter(kind, 2)
    };
    mail.expect_several(WaiterId(1), id, 2);
    assert_eq!((mail.len(), mail.box_len(id)), (3, 2), "once for each key");
    mail.post(WaiterId(1), 2, refusal);
    assert_eq!((mail.letters(), mail.requests()), (1, 0));
    let name = owner(0);
    let name = OwnerRef::new(name.as_bytes()).expect("in bounds");
    let others = KeyList::new(vec![key(0), key(2)]);
    for (keys, mode) in [
        (None, Mode::Write),
        (Some(&others), Mode::Write),
        (Some(&both), Mode::Read),
    ] {
        mail.withdraw_refusal(&key(0), keys, name, mode);
        assert_eq!(mail.letters(), 1, "{keys:?} {mode:?}");
    }
    let turned = KeyList::new(vec![key(1), key(0)]);
    mail.withdraw_refusal(&key(0), Some(&turned), name, Mode::Write);
    assert_eq!(mail.letters(), 0);
}

#[test]
fn a_grant_is_as_old_as_the_milliseconds_that_have_begun_since() {
    let granted = Instant::from_millis(1_000);
    for (now, old) in [
        (999_000, 0),
        (1_000_000, 0),
        (1_000_001, 1),
        (3_000_000, 2_000),
    ] {
        assert_eq!(age(granted, now), old, "{now} µs");
    }
}

#[test]
fn an_undelivered_grant_undoes_what_an_earlier_undelivered_one_had_changed() {
    let mut mail = Mail::new();
    let id = mail.make(b"box", b"", 1, Instant::from_millis(0));
    let first = Undo {
        granted: Touched::by(7),
        token: Token::MAX,
        before: None,
    };
    let between = Stake {
        write: 1,
        read: 0,
        token: Token::MAX,
        deadline: Instant::from_millis(9),
        since: Instant::from_millis(0),
        touched: first.granted,
        revoked: false,
    };
    let mut later = letter(
        Kind {
            key: 0,
            owner: 0,
            write: false,
            result: 0,
        },
        2,
    );
    if let Outcome::Granted { undo, .. } = &mut later.outcome {
        undo.before = Some(Box::new(between));
    }
    let name = owner(0);
    let name = OwnerRef::new(name.as_bytes()).expect("in bounds");
    mail.expect(WaiterId(1), id);
    mail.post(WaiterId(1), 2, later);
    assert!(!mail.hand_on(&key(1), name, &first));
    assert!(mail.hand_on(&key(0), name, &first));
    mail.close(id);
    match mail.next_leaving() {
        Some(Leaving::Grant(undelivered)) => assert_eq!(undelivered.undo.before, None),
        other => panic!("{other:?}"),
    }
}
