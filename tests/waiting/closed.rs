//! Clients that are closed in the turn in which their grant is decided.

use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, hold_of, holders_of, send, waiter,
};

/// The server asks for the reply to a client that it is about to close, and throws it away. Nothing tells such a reply from one
/// that the client has read.
#[test]
fn a_grant_whose_reply_the_server_throws_away_lasts_for_its_lease() {
    let delete_user = command!("ACL DELUSER guest");
    let script = "for n = 1, 4000 do redis.call('SET', string.rep('x', 50) .. n, n) end";
    // With its reply the client passes its output limit.
    let flood = command!("EVAL", script, 0);
    for closing in [delete_user, flood] {
        let (server, mut a) = Server::configured("client-output-buffer-limit normal 65536 0 0");
        cmd!(a, "ACL SETUSER guest on nopass ~* &* +@all");
        cmd!(a, "LOCK.ACQUIRE key a 60000");
        let mut b = server.connect_resp3();
        cmd!(b, "AUTH", "guest", "");
        cmd!(b, "CLIENT TRACKING on BCAST");
        send!(b, "LOCK.ACQUIRE key b 1000 WAIT 0");
        server.await_blocked(&b);
        let mut c = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT 0");
        a.pipeline(&[command!("LOCK.RELEASE key a"), closing]);
        assert_eq!(holders_of(&mut a, "key"), ["b"]);
        let gone = eventually("b is closed", || b.try_recv().err());
        assert!(gone.starts_with("connection closed"), "{gone}");
        granted(&mut c);
        assert_eq!(server.gauge("total_expiries"), 1);
    }
}

/// The client reads a reply and then closes its connection.
#[test]
fn a_waiter_that_quits_in_the_same_write_keeps_the_lock() {
    let (server, mut a) = Server::builder().unix_socket().start_connected();
    let tracking = || {
        let mut conn = server.connect_resp3();
        cmd!(conn, "CLIENT TRACKING on");
        conn
    };
    let kept = || {
        let mut conn = server.connect_unix();
        cmd!(conn, "CLIENT NO-EVICT on");
        conn
    };
    let kinds: [(&str, &dyn Fn() -> Conn); 3] = [
        ("plain", &|| server.connect()),
        ("that tracks keys", &tracking),
        ("over a socket, never evicted", &kept),
    ];
    for (kind, connect) in kinds {
        for _ in 0..10 {
            cmd!(a, "LOCK.ACQUIRE key a 60000");
            let mut b = connect();
            b.send_raw(b"LOCK.ACQUIRE key b 60000 WAIT 0\r\nQUIT\r\n");
            server.await_gauge("waiters", 1);
            cmd!(a, "LOCK.RELEASE key a");
            let token = granted(&mut b);
            eventually("b is gone", || b.try_recv().is_err());
            let hold = hold_of(&mut a, "key", "b");
            assert_eq!(hold.map(|hold| hold.token), Some(token), "{kind}");
            cmd!(a, "LOCK.RELEASE key b");
        }
    }
}

/// So does a client that closes as soon as it has read its reply, even in the same turn of the event loop.
#[test]
fn a_waiter_that_closes_as_soon_as_it_has_its_grant_keeps_the_lock() {
    let (server, mut a) = Server::start_connected();
    for _ in 0..200 {
        cmd!(a, "LOCK.ACQUIRE key a 60000");
        let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
        cmd!(a, "LOCK.RELEASE key a");
        let token = granted(&mut b);
        drop(b);
        assert_eq!(hold_of(&mut a, "key", "b").expect("b holds").token, token);
        cmd!(a, "LOCK.RELEASE key b");
    }
}
