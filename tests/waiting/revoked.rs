//! Requests that wait at a key where their owner's hold is revoked.

use mortise_harness::{
    Conn, Server, Shutdown, assert_error, cmd, command, granted, hold_of, holders_of, int, is_nil,
    mail, queue, queue_of, refused, request, send, try_cmd, waiter,
};

#[track_caller]
fn assert_refused(conn: &mut Conn) {
    assert_error(conn.try_recv(), "REVOKED ");
}

#[test]
fn a_waiting_upgrade_is_refused_at_once_and_the_requests_behind_it_are_granted() {
    let (server, mut conn) = Server::start_connected();
    for owner in ["a", "b"] {
        cmd!(conn, "LOCK.RLOCK key {owner} 60000");
    }
    let mut upgrade = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0");
    let mut again = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0");
    let mut elsewhere = waiter!(server, "LOCK.RLOCK key c 60000 WAIT 0");
    assert!(int(&cmd!(conn, "LOCK.REVOKE key a")) > 0);
    assert_refused(&mut upgrade);
    assert_refused(&mut again);
    granted(&mut elsewhere);
    assert_eq!(holders_of(&mut conn, "key"), ["a", "b", "c"]);
    assert_eq!(server.gauge("waiters"), 0);
}

#[test]
fn a_request_by_mail_gets_a_letter_that_refuses_it() {
    let (server, mut conn) = Server::start_connected();
    for owner in ["a", "b"] {
        cmd!(conn, "LOCK.RLOCK key {owner} 60000");
    }
    queue!(conn, "box", "LOCK.WLOCK key a 60000");
    cmd!(conn, "LOCK.REVOKE key a");
    let mail = mail!(conn, "box");
    let letter = mail.only();
    assert_eq!((&*letter.owner, &*letter.result), ("a", "refused"));
    let error = letter.error.as_deref().unwrap();
    assert!(error.starts_with("REVOKED "), "{error}");
    // The text is that of a blocked request's error.
    let blocked = try_cmd!(conn, "LOCK.WLOCK key a 60000").unwrap_err();
    assert_eq!(error, blocked);
    assert_eq!(server.gauge("waiters_by_mail"), 0);
    // A repeated request is refused at once.
    let again = conn.try_run(&request!("box", 0, "LOCK.WLOCK key a 60000"));
    assert_eq!(again.unwrap_err(), blocked);
}

#[test]
fn a_revoked_hold_that_comes_to_the_key_refuses_its_owners_requests_there() {
    let (server, mut conn) = Server::builder().alone().start_connected();
    cmd!(conn, "LOCK.ACQUIRE key b 60000");
    let mut mine = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0");
    let mut next = waiter!(server, "LOCK.WLOCK key c 60000 WAIT 0");
    cmd!(conn, "LOCK.ACQUIRE other a 60000");
    cmd!(conn, "LOCK.REVOKE other a");
    cmd!(conn, "RENAME other key");
    assert_refused(&mut mine);
    assert_eq!(queue_of(&mut conn, "key"), ["c"]);
    cmd!(conn, "LOCK.RELEASE key a");
    granted(&mut next);
}

#[test]
fn a_lost_upgrade_that_is_undone_leaves_a_read_hold_that_is_still_revoked() {
    let (server, mut conn) = Server::start_connected();
    let token = int(&cmd!(conn, "LOCK.RLOCK key b 60000"));
    cmd!(conn, "LOCK.RLOCK key a 60000");
    let b = waiter!(server, "LOCK.WLOCK key b 60000 WAIT 0");
    let mut c = waiter!(server, "LOCK.RLOCK key c 60000 WAIT 0");
    // The hold is revoked while its grant is not yet delivered, and the client disconnects before that.
    let replies = conn.pipeline(&[
        command!("LOCK.RELEASE key a"),
        command!("LOCK.REVOKE key b"),
        command!("CLIENT", "KILL", "ID", b.client_id()),
    ]);
    assert!(int(replies[1].as_ref().unwrap()) > 0);
    granted(&mut c);
    let hold = hold_of(&mut conn, "key", "b").expect("b still reads");
    assert_eq!(
        (hold.token, hold.counts(), hold.revoked),
        (token, (0, 1), true)
    );
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW key b 60000")));
}

#[test]
fn a_lost_grant_is_undone_though_its_hold_was_revoked() {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 60000");
    let b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    conn.pipeline(&[
        command!("LOCK.RELEASE key a"),
        command!("LOCK.REVOKE key b"),
        command!("CLIENT", "KILL", "ID", b.client_id()),
    ]);
    granted(&mut c);
    // Its hold has ended, and so has the mark.
    cmd!(conn, "LOCK.RELEASE key c");
    int(&cmd!(conn, "LOCK.ACQUIRE key b 60000"));
}

#[test]
fn an_undelivered_upgrade_of_a_revoked_hold_whose_box_closes_is_undone() {
    let (server, mut conn) = Server::configured("lock.mail-timeout 300");
    for owner in ["a", "b"] {
        cmd!(conn, "LOCK.RLOCK key {owner} 60000");
    }
    queue!(conn, "box", "LOCK.WLOCK key a 60000");
    let mut c = waiter!(server, "LOCK.RLOCK key c 60000 WAIT 0");
    cmd!(conn, "LOCK.RELEASE key b");
    cmd!(conn, "LOCK.REVOKE key a");
    granted(&mut c);
    let hold = hold_of(&mut conn, "key", "a").expect("a still reads");
    assert_eq!((hold.counts(), hold.revoked), ((0, 1), true));
}

/// `a` writes `key` and reads `other`, on a server that grants nothing for a minute.
fn in_grace() -> Server {
    let (mut server, mut conn) = Server::configured("appendonly yes");
    cmd!(conn, "LOCK.WLOCK key a 600000");
    cmd!(conn, "LOCK.RLOCK other a 600000");
    cmd!(conn, "LOCK.RLOCK other b 600000");
    server.set_module_arg("grace", "60000");
    server.restart(Shutdown::AsConfigured);
    assert!(server.gauge("grace_left_ms") > 0);
    server
}

#[test]
fn in_the_grace_a_hold_is_revoked_and_its_owners_requests_are_refused_at_once() {
    let server = in_grace();
    let mut conn = server.connect();
    let mut reentry = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0");
    let mut upgrade = waiter!(server, "LOCK.WLOCK other a 60000 WAIT 0");
    queue!(conn, "box", "LOCK.RLOCK other a 60000");
    let _stranger = waiter!(server, "LOCK.WLOCK key c 60000 WAIT 0");
    for key in ["key", "other"] {
        assert!(int(&cmd!(conn, "LOCK.REVOKE {key} a")) > 0);
    }
    assert_refused(&mut reentry);
    assert_refused(&mut upgrade);
    assert_eq!(mail!(conn, "box").only().result, "refused");
    assert_eq!(queue_of(&mut conn, "key"), ["c"]);
    // Its later requests are refused as well, while those of others are denied.
    for acquire in ["LOCK.WLOCK", "LOCK.RLOCK"] {
        refused!(conn, "REVOKED ", "{acquire} other a 60000");
        assert!(is_nil(&cmd!(conn, "{acquire} other b 60000")));
        assert!(is_nil(&cmd!(conn, "{acquire} other c 60000")));
    }
    assert!(is_nil(&cmd!(conn, "LOCK.RENEW key a 600000")));
    // A hold that was revoked before comes to a key of the same name at which its owner waits.
    cmd!(conn, "SELECT 1");
    let mut elsewhere = server.connect();
    cmd!(elsewhere, "SELECT 1");
    send!(elsewhere, "LOCK.WLOCK key a 60000 WAIT 0");
    server.await_blocked(&elsewhere);
    cmd!(conn, "SWAPDB 0 1");
    assert!(int(&cmd!(conn, "LOCK.REVOKE key a")) > 0);
    assert_refused(&mut elsewhere);
    assert!(server.gauge("grace_left_ms") > 0);
}
