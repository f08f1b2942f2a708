//! Waiters that leave before their turn: they time out, are unblocked or killed, or disconnect.

use mortise_harness::{
    Conn, Server, assert_error, cmd, command, granted, holders_of, int, is_nil, text, waiter,
};

/// `a` reads, a writer waits for it, and behind the writer two readers.
fn scene(writers_wait: u64) -> (Server, Conn, Conn, [Conn; 2]) {
    let (server, mut conn) = Server::start_connected();
    cmd!(conn, "LOCK.RLOCK key a 60000");
    let writer = waiter!(server, "LOCK.WLOCK key w 60000 WAIT {writers_wait}");
    let readers = ["r1", "r2"].map(|owner| waiter!(server, "LOCK.RLOCK key {owner} 60000 WAIT 0"));
    (server, conn, writer, readers)
}

#[test]
fn a_writer_that_leaves_gets_its_reply_and_lets_the_readers_behind_it_in() {
    let ends: [fn(&mut Conn, Conn); 6] = [
        |_, mut writer| assert!(is_nil(&writer.recv()), "timed out"),
        |_, writer| drop(writer),
        |conn, mut writer| {
            cmd!(conn, "CLIENT", "KILL", "ID", writer.client_id());
            assert_error(writer.try_recv(), "connection closed");
        },
        |conn, mut writer| {
            let id = writer.client_id();
            assert_eq!(int(&cmd!(conn, "CLIENT UNBLOCK {id}")), 1);
            assert!(is_nil(&writer.recv()));
            assert_eq!(int(&cmd!(conn, "CLIENT UNBLOCK {id}")), 0);
        },
        |conn, mut writer| {
            cmd!(conn, "CLIENT", "UNBLOCK", writer.client_id(), "TIMEOUT");
            assert!(is_nil(&writer.recv()));
        },
        |conn, mut writer| {
            cmd!(conn, "CLIENT", "UNBLOCK", writer.client_id(), "ERROR");
            assert_error(writer.try_recv(), "UNBLOCKED ");
            // The connection still works.
            assert!(is_nil(&cmd!(writer, "GET other")));
        },
    ];
    for (n, end) in ends.into_iter().enumerate() {
        let (server, mut conn, writer, mut readers) = scene(if n == 0 { 500 } else { 0 });
        end(&mut conn, writer);
        for reader in &mut readers {
            granted(reader);
        }
        assert_eq!(holders_of(&mut conn, "key"), ["a", "r1", "r2"]);
        assert_eq!(server.gauge("waiters"), 0);
        server.await_gauge("blocked_clients", 0);
    }
}

#[test]
fn an_unblocked_client_can_wait_again() {
    let (server, mut conn, mut writer, _readers) = scene(0);
    for _ in 0..3 {
        cmd!(conn, "CLIENT", "UNBLOCK", writer.client_id());
        assert!(is_nil(&writer.recv()));
        writer.submit(&command!("LOCK.WLOCK key w 60000 WAIT 0"));
        server.await_blocked(&writer);
    }
    for owner in ["a", "r1", "r2"] {
        cmd!(conn, "LOCK.RELEASE key {owner}");
    }
    granted(&mut writer);
}

#[test]
fn a_dead_waiter_at_the_head_does_not_block_a_free_lock() {
    // Over Unix sockets, where later data on another connection cannot arrive before the end of this one.
    let server = Server::builder().unix_socket().start();
    let mut a = server.connect_unix();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let [dead, mut next] = ["dead", "next"].map(|owner| {
        let mut waiter = server.connect_unix();
        waiter.submit(&command!("LOCK.ACQUIRE key {owner} 60000 WAIT 0"));
        server.await_blocked(&waiter);
        waiter
    });
    drop(dead);
    cmd!(a, "LOCK.RELEASE key a");
    granted(&mut next);
}

#[test]
fn a_wait_that_times_out_at_the_end_of_the_lease_gets_one_reply() {
    let (server, mut a) = Server::start_connected();
    for round in 0..20 {
        cmd!(a, "LOCK.ACQUIRE key a 40");
        let mut b = server.connect();
        b.submit(&command!("LOCK.ACQUIRE key b 60000 WAIT 40"));
        b.submit(&command!("PING"));
        let reply = b.recv();
        let holds = holders_of(&mut a, "key") == ["b"];
        assert_eq!(!is_nil(&reply), holds, "round {round}: {reply:?}");
        assert_eq!(text(&b.recv()), "PONG");
        cmd!(a, "LOCK.RELEASE key b");
        cmd!(a, "LOCK.RELEASE key a");
    }
}
