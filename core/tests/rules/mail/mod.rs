//! Boxes and letters, compared with a naive model of the contract: random programs run on both, and every answer must agree.
//! `PROPTEST_CASES` sets how many programs.

pub(crate) mod program;
mod reference;

use mortise_core::mail::{BoxId, Letter, NotYours, age};
use mortise_core::{Db, Homes, Instant, KeyList, Mail, WaiterId};
use proptest::prelude::*;

use program::{Kind, key, letter, ops, run};

const GRANTED: Kind = Kind {
    key: 0,
    owner: 0,
    write: true,
    result: 0,
};

fn post(mail: &mut Mail, id: BoxId, number: u64, letter: Letter) {
    mail.expect(WaiterId(number), id, 1);
    mail.post(WaiterId(number), number, letter, &Homes::default());
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
        result: 1,
        ..GRANTED
    };
    for (waiter, number) in [(1, 2), (2, 3)] {
        mail.expect(WaiterId(waiter), id, 1);
        mail.post(
            WaiterId(waiter),
            number,
            letter(denied, number),
            &Homes::default(),
        );
    }
    mail.ask(id, Some(2), now, now);
    let left: Vec<u64> = mail
        .deliver(id, 9, now, &Homes::default())
        .map(|it| it.number)
        .collect();
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
fn after_a_swap_a_grant_is_where_its_lock_is_and_a_refusal_where_its_queue_is() {
    let now = Instant::from_millis(0);
    let (mut mail, mut homes) = (Mail::new(), Homes::default());
    let id = mail.make(b"box", b"", 1, now);
    let kind = |result| Kind { result, ..GRANTED };
    for (number, result) in [(2, 0), (3, 1)] {
        post(&mut mail, id, number, letter(kind(result), number));
    }
    let mut dbs = |homes: &Homes| -> Vec<u32> {
        let sent = mail.deliver(id, 9, now, homes);
        sent.map(|sent| sent.db.0).collect()
    };
    assert_eq!(dbs(&homes), [0, 0]);
    homes.swap(Db(0), Db(7));
    assert_eq!(dbs(&homes), [7, 0], "as they are sent again");
}

#[test]
fn a_request_for_several_keys_counts_once_for_each_until_it_is_answered() {
    let now = Instant::from_millis(0);
    let mut mail = Mail::new();
    let id = mail.make(b"box", b"", 1, now);
    let refusal = Letter {
        keys: KeyList::Several([key(0), key(1)].into()),
        ..letter(
            Kind {
                result: 2,
                ..GRANTED
            },
            2,
        )
    };
    mail.expect(WaiterId(1), id, 2);
    assert_eq!((mail.letters(), mail.requests()), (0, 1));
    assert_eq!((mail.len(), mail.box_len(id)), (3, 2), "once for each key");
    mail.post(WaiterId(1), 2, refusal, &Homes::default());
    assert_eq!((mail.letters(), mail.requests()), (1, 0));
    assert_eq!((mail.len(), mail.box_len(id)), (2, 1));
}

#[test]
fn a_request_by_mail_belongs_to_the_user_of_its_box_until_it_is_answered() {
    let now = Instant::from_millis(0);
    let mut mail = Mail::new();
    assert!(mail.is_empty());
    let id = mail.make(b"box", b"user", 1, now);
    let waiter = WaiterId(1);
    assert!(!mail.is_expected(waiter) && mail.user_of(waiter).is_none());
    mail.expect(waiter, id, 3);
    assert!(mail.is_expected(waiter));
    assert_eq!(mail.user_of(waiter), Some(&b"user"[..]));
    assert_eq!((mail.len(), mail.box_len(id)), (4, 3));
    assert!(mail.forget_request(waiter) && !mail.forget_request(waiter));
    assert!(!mail.is_expected(waiter) && mail.user_of(waiter).is_none());
    assert_eq!((mail.len(), mail.box_len(id)), (1, 0));
    for (waiter, number) in [(2, 2), (3, 3)] {
        mail.expect(WaiterId(waiter), id, 1);
        let denied = Kind {
            result: 1,
            ..GRANTED
        };
        mail.post(
            WaiterId(waiter),
            number,
            letter(denied, number),
            &Homes::default(),
        );
    }
    assert_eq!((mail.boxes(), mail.letters(), mail.len()), (1, 2, 3));
    assert!(!mail.is_empty());
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
fn a_closed_box_leaves_until_it_is_empty() {
    for all in [false, true] {
        let mut mail = Mail::new();
        let id = mail.make(b"box", b"", 1, Instant::from_millis(0));
        post(&mut mail, id, 2, letter(GRANTED, 2));
        if all {
            mail.close_all();
        } else {
            mail.close(id);
        }
        assert!(!mail.is_empty());
        while mail.next_leaving().is_some() {}
        assert!(mail.is_empty());
    }
}

#[test]
fn a_box_whose_letters_were_deleted_is_empty_when_it_is_closed() {
    let mut mail = Mail::new();
    let never = Instant::NEVER;
    let id = mail.make(b"box", b"", 1, never);
    for number in [2, 3] {
        post(&mut mail, id, number, letter(GRANTED, number));
    }
    assert!(mail.has_letters_after(id, Some(2)) && !mail.has_letters_after(id, Some(3)));
    assert_eq!(mail.deliver(id, 1, never, &Homes::default()).count(), 1);
    let undelivered = mail.ask(id, Some(3), never, never);
    assert_eq!(undelivered, [WaiterId(3)], "the first was delivered");
    assert!(!mail.is_empty());
    mail.close(id);
    assert!(mail.is_empty());
}

#[test]
fn a_box_whose_reader_was_lost_is_overdue_until_it_is_asked_for_again() {
    let at = Instant::from_millis;
    let mut mail = Mail::new();
    let (one, other) = (
        mail.make(b"one", b"", 1, at(1_000)),
        mail.make(b"other", b"", 2, at(1_000)),
    );
    mail.set_lost(one, at(110));
    mail.set_lost(other, at(120));
    assert_eq!(mail.overdue(at(109)), None);
    assert_eq!(mail.overdue(at(110)), Some(one));
    mail.ask(one, None, at(1_110), at(9_000));
    assert_eq!(mail.overdue(at(119)), None);
    assert_eq!(mail.overdue(at(120)), Some(other));
    mail.close(other);
    assert_eq!(mail.overdue(at(900)), None);
    mail.set_lost(one, at(2_000));
    assert_eq!(mail.overdue(at(1_110)), Some(one));
}

#[test]
fn a_box_is_overdue_only_while_a_delivered_letter_is_in_it() {
    let (read, unread_until) = (Instant::from_millis(10), Instant::from_millis(20));
    // How many of three letters are delivered. The client deletes the first one.
    for (count, overdue) in [(0, false), (1, false), (2, true), (3, true)] {
        let mut mail = Mail::new();
        let id = mail.make(b"box", b"", 1, Instant::NEVER);
        for number in 2..5 {
            post(&mut mail, id, number, letter(GRANTED, number));
        }
        drop(mail.deliver(id, count, read, &Homes::default()));
        assert_eq!(mail.overdue(read), (count > 0).then_some(id));
        mail.ask(id, Some(2), Instant::NEVER, unread_until);
        assert_eq!(mail.overdue(read), None);
        assert_eq!(mail.overdue(unread_until), overdue.then_some(id), "{count}");
    }
}
