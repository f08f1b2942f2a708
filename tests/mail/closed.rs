//! A LOCK.MAIL whose client is closed in the turn in which it gets letters.

use mortise_harness::{Server, cmd, command, eventually, granted, holders_of, queue, send, waiter};

/// The server asks for the reply to a client that it is about to close, and throws it away: the letters count as sent.
#[test]
fn a_grant_whose_letter_the_server_throws_away_lasts_for_its_lease() {
    let (server, mut a) = Server::configured("lock.mail-timeout 300");
    cmd!(a, "ACL SETUSER guest on nopass ~* &* +@all");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let mut reader = server.connect();
    cmd!(reader, "AUTH", "guest", "");
    queue!(reader, "box", "LOCK.ACQUIRE key b 1500");
    let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
    send!(reader, "LOCK.MAIL box WAIT 0");
    server.await_blocked(&reader);
    let delete_user = command!("ACL DELUSER guest");
    a.pipeline(&[command!("LOCK.RELEASE key a"), delete_user]);
    let gone = eventually("the reader is closed", || reader.try_recv().err());
    assert!(gone.starts_with("connection closed"), "{gone}");
    server.await_gauge("boxes", 0);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
    granted(&mut c);
    assert_eq!(server.gauge("total_expiries"), 1);
}

/// The client reads the reply and then closes its connection: the letter was delivered, and the grant stays for its lease.
#[test]
fn a_letter_to_a_reader_that_quits_in_the_same_write_is_delivered() {
    let (server, mut a) = Server::configured("lock.mail-timeout 300");
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    queue!(a, "box", "LOCK.ACQUIRE key b 60000");
    let mut reader = server.connect();
    reader.send_raw(b"LOCK.MAIL box WAIT 0\r\nQUIT\r\n");
    server.await_blocked(&reader);
    cmd!(a, "LOCK.RELEASE key a");
    assert!(reader.try_recv().is_ok(), "the letter");
    server.await_gauge("boxes", 0);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
}
