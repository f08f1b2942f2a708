//! What follows from letters, and from calls that fail.

use super::*;

fn text(text: &str) -> Reply {
    Reply::Text(text.as_bytes().to_vec())
}

fn letter(number: i64, owner: &str, result: &str, rest: &[(&str, Reply)]) -> Reply {
    let fields = [
        ("number", Reply::Int(number)),
        ("key", text("k")),
        ("owner", text(owner)),
        ("result", text(result)),
    ];
    let flat = fields.iter().chain(rest);
    Reply::Array(
        flat.flat_map(|(name, value)| [text(name), value.clone()])
            .collect(),
    )
}

fn granted(number: i64, owner: &str, age: i64) -> Reply {
    let rest = [("token", Reply::Int(number)), ("age", Reply::Int(age))];
    letter(number, owner, "granted", &rest)
}

fn mail(since: i64, waited: i64, letters: &[Reply]) -> Reply {
    let letters = Reply::Array(letters.to_vec());
    Reply::Array(vec![Reply::Int(since), Reply::Int(waited), letters])
}

fn name(owner: &str) -> Name {
    Name::new(b"k".as_slice().into(), owner.as_bytes().into())
}

fn mailbox(owners: &[&str]) -> Mailbox {
    let mut mailbox = Mailbox::default();
    for owner in owners {
        mailbox.enter(&name(owner)).unwrap();
    }
    mailbox
}

fn decided(mailbox: &mut Mailbox, owner: &str) -> String {
    match mailbox.poll(owner.as_bytes(), Waker::noop()) {
        Poll::Ready(decision) => format!("{:?}", decision.0),
        Poll::Pending => "pending".to_owned(),
    }
}

#[test]
fn a_grant_by_mail_counts_from_its_arrival_less_its_age() {
    let (mut mailbox, sent) = (mailbox(&["a"]), BootInstant::now());
    let mail = mail(1, 700, &[granted(5, "a", 200)]);
    mailbox.on_mail(mail, sent).unwrap();
    let Poll::Ready((Ok(Reply::Int(5)), since)) = mailbox.poll(b"a", Waker::noop()) else {
        panic!();
    };
    // Of the wait a hundredth is for clocks that run apart.
    assert_eq!(since, sent + Duration::from_millis(700 - 7 - 200));
}

#[test]
fn an_unwanted_grant_is_returned_once_and_one_that_was_read_is_not() {
    let (mut mailbox, now) = (mailbox(&["a"]), BootInstant::now());
    let denied = letter(4, "gone", "denied", &[]);
    let letters = [denied, granted(5, "a", 0), granted(6, "b", 0)];
    let unwanted = mailbox.on_mail(mail(1, 0, &letters), now).unwrap().unwanted;
    let [name] = &unwanted[..] else { panic!() };
    assert_eq!((&*name.key, &*name.owner), (&b"k"[..], &b"b"[..]));
    assert_eq!(decided(&mut mailbox, "a"), "Ok(5)");
    mailbox.forget(b"a");
    // The reply to the call that deletes them is lost: they are delivered again.
    let unwanted = mailbox.on_mail(mail(1, 0, &letters), now).unwrap().unwanted;
    assert!(unwanted.is_empty());
    mailbox.enter(&self::name("c")).unwrap();
    assert!(mailbox.collect(b"box", Duration::ZERO).is_none());
    let queued = Reply::Array(vec![text("QUEUED"), Reply::Int(1)]);
    mailbox.queued(b"c", &queued);
    let read = match mailbox.collect(b"box", Duration::ZERO) {
        Some(Command::Mail { read, .. }) => read.map(|it| (it.since, it.number)),
        other => panic!("{other:?}"),
    };
    assert_eq!(read, Some((1, 6)));
}

#[test]
fn an_unwanted_grant_of_several_keys_is_returned_at_each() {
    let (mut mailbox, now) = (mailbox(&[]), BootInstant::now());
    let keys = Reply::Array(vec![text("k"), text("l")]);
    let rest = [
        ("token", Reply::Int(7)),
        ("age", Reply::Int(0)),
        ("keys", keys),
    ];
    let letters = [letter(1, "a", "granted", &rest)];
    let unwanted = mailbox.on_mail(mail(1, 0, &letters), now).unwrap().unwanted;
    let keys: Vec<_> = unwanted[0].each().map(|name| name.key).collect();
    assert_eq!(
        keys.iter().map(|it| &**it).collect::<Vec<_>>(),
        [b"k", b"l"]
    );
}

#[test]
fn a_new_box_ends_only_the_waits_in_the_old_one() {
    let (mut mailbox, now) = (mailbox(&["old", "new", "asking"]), BootInstant::now());
    for (owner, since) in [("old", 1), ("new", 2)] {
        let reply = Reply::Array(vec![text("QUEUED"), Reply::Int(since)]);
        mailbox.queued(owner.as_bytes(), &reply);
    }
    mailbox.on_mail(mail(2, 0, &[]), now).unwrap();
    assert!(decided(&mut mailbox, "old").contains("has closed the box"));
    assert_eq!(decided(&mut mailbox, "new"), "pending");
    assert_eq!(decided(&mut mailbox, "asking"), "pending");
}

fn queued(mailbox: &mut Mailbox, owner: &str, since: i64) -> bool {
    let reply = Reply::Array(vec![text("QUEUED"), Reply::Int(since)]);
    mailbox.queued(owner.as_bytes(), &reply)
}

#[test]
fn a_late_reply_that_names_a_closed_box_ends_the_wait_with_the_next_letters() {
    let (mut mailbox, now) = (mailbox(&["late"]), BootInstant::now());
    mailbox.on_mail(mail(2, 0, &[]), now).unwrap();
    queued(&mut mailbox, "late", 1);
    assert_eq!(decided(&mut mailbox, "late"), "pending");
    mailbox.on_mail(mail(2, 0, &[]), now).unwrap();
    assert!(decided(&mut mailbox, "late").contains("has closed the box"));
}

#[test]
fn one_task_collects_letters_while_requests_wait() {
    let mut mailbox = mailbox(&["a", "b"]);
    assert!(queued(&mut mailbox, "a", 1), "somebody has to begin");
    assert!(!queued(&mut mailbox, "b", 1), "somebody does already");
    mailbox.forget(b"a");
    assert!(mailbox.collect(b"box", Duration::ZERO).is_some());
    mailbox.forget(b"b");
    assert!(mailbox.collect(b"box", Duration::ZERO).is_none());
    mailbox.enter(&name("c")).unwrap();
    assert!(queued(&mut mailbox, "c", 1), "that task has ended");
}

/// What a request that waits gets from the error that answers a call for letters.
fn after_error(line: &str, is_elsewhere: bool) -> String {
    let mut mailbox = mailbox(&["a"]);
    let answer = Ok(Reply::Error(line.to_owned()));
    mailbox.on_answer(answer, BootInstant::now(), is_elsewhere);
    decided(&mut mailbox, "a")
}

#[test]
fn an_error_ends_all_waits_unless_it_passes_by_itself() {
    for passing in ["UNBLOCKED by another call", "BUSY a script runs"] {
        assert_eq!(after_error(passing, false), "pending");
    }
    // Not an answer to the request, which still waits.
    let decided = after_error("NOPERM x", false);
    assert!(
        decided.starts_with("Err") && decided.contains("NOPERM x"),
        "{decided}"
    );
    for (line, is_elsewhere) in [("READONLY x", false), ("MOVED 1 x", true)] {
        let decided = after_error(line, is_elsewhere);
        assert!(decided.contains("has closed the box"), "{line}: {decided}");
    }
}

#[test]
fn who_waits_is_woken_when_nobody_collects_any_more() {
    let mut mailbox = mailbox(&["a"]);
    assert!(queued(&mut mailbox, "a", 1));
    assert_eq!(decided(&mut mailbox, "a"), "pending");
    assert_eq!(mailbox.abandon().len(), 1);
    assert_eq!(decided(&mut mailbox, "a"), "Err(RuntimeGone)");
    mailbox.enter(&name("b")).unwrap();
    assert!(
        queued(&mut mailbox, "b", 1),
        "somebody has to begin once more"
    );
}

#[test]
fn three_calls_in_a_row_may_fail() {
    let (mut mailbox, now) = (mailbox(&["a"]), BootInstant::now());
    let fail = |mailbox: &mut Mailbox| {
        let lost = NoReply::NotSent(ConnectionError::new("refused"));
        mailbox.on_answer(Err(lost), now, false);
        decided(mailbox, "a")
    };
    for _ in 0..3 {
        assert_eq!(fail(&mut mailbox), "pending");
    }
    mailbox.on_answer(Ok(mail(1, 0, &[])), now, false);
    for _ in 0..3 {
        assert_eq!(fail(&mut mailbox), "pending", "the count begins anew");
    }
    let failed = fail(&mut mailbox);
    assert!(failed.starts_with("Err(Unknown"), "{failed}");
}

#[test]
fn a_closed_mailbox_ends_pending_requests_and_names_them() {
    let mut mailbox = mailbox(&["a"]);
    let names = mailbox.close().unwanted;
    assert_eq!(names.len(), 1);
    assert_eq!(decided(&mut mailbox, "a"), "Err(Closed)");
    assert!(mailbox.enter(&name("b")).is_err());
}

#[test]
fn a_time_out_and_an_error_are_reported_as_such() {
    let (mut mailbox, now) = (mailbox(&["a", "b", "c"]), BootInstant::now());
    let refused = letter(2, "b", "refused", &[("error", text("DEADLOCK x"))]);
    let letters = [letter(1, "a", "denied", &[]), refused];
    mailbox.on_mail(mail(9, 0, &letters), now).unwrap();
    assert_eq!(decided(&mut mailbox, "a"), "Ok(nil)");
    assert_eq!(decided(&mut mailbox, "b"), "Ok((DEADLOCK x))");
    mailbox.fail(&Err(NoReply::Closed));
    assert!(decided(&mut mailbox, "c").starts_with("Err"));
    assert!(mailbox.on_mail(Reply::Nil, now).is_err());
}
