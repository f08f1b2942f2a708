//! The lock's own key-space events, and those of the command inside.

use mortise_harness::{Server, array, cmd, command, int, text};

#[test]
fn the_end_of_a_lease_is_an_event_before_those_of_the_command() {
    let (server, mut ear) = Server::configured("notify-keyspace-events Kd$");
    cmd!(ear, "PSUBSCRIBE __key*__:*");
    let mut conn = server.connect();
    let token = int(&cmd!(conn, "LOCK.RLOCK key a 60000"));
    // In one write, so that no timer ends the lease before.
    let replies = conn.pipeline(&[
        command!("LOCK.RLOCK key b 20"),
        command!("DEBUG SLEEP 0.1"),
        command!("LOCK.GUARD key a {token} SET data 1"),
    ]);
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    let mut event = || {
        let message = array(&ear.recv()).to_vec();
        text(&message[3])
    };
    let events = [event(), event(), event(), event()];
    assert_eq!(
        events,
        ["lock.acquire", "lock.acquire", "lock.expire", "set"]
    );
}
