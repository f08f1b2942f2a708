//! A subscribed client, which in RESP3 may send any command. Not every server can block it.

use mortise_harness::{Server, array, cmd, is_nil, send, text};

#[test]
fn a_subscribed_client_that_requests_to_wait_gets_a_reply_in_time() {
    let (server, mut holder) = Server::start_connected();
    cmd!(holder, "LOCK.ACQUIRE key a 60000");
    let mut subscribed = server.connect_resp3();
    cmd!(subscribed, "SUBSCRIBE news");
    send!(subscribed, "LOCK.ACQUIRE key b 1000 WAIT 50");
    assert!(is_nil(&subscribed.recv()));
    send!(subscribed, "LOCK.MAIL box WAIT 50");
    assert!(array(&array(&subscribed.recv())[2]).is_empty());
    assert_eq!(text(&cmd!(holder, "PING")), "PONG");
    assert_eq!(server.gauge("waiters"), 0);
}
