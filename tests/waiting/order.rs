//! The queue: first in, first out, readers in batches, and nobody overtakes.

use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, hold_of, holders_of, int, is_nil, lock_info,
    queue_of, send, waiter,
};

/// A server on which `a` holds `key` to write, and the connection that was granted.
fn held() -> (Server, Conn) {
    let (server, mut conn) = Server::start_connected();
    int(&cmd!(conn, "LOCK.ACQUIRE key a 60000"));
    (server, conn)
}

#[test]
fn a_reader_does_not_overtake_a_writer_that_waits_behind_readers() {
    let (server, mut a) = Server::start_connected();
    cmd!(a, "LOCK.RLOCK key a 60000");
    let mut w = waiter!(server, "LOCK.WLOCK key w 60000 WAIT 0");
    assert!(is_nil(&cmd!(a, "LOCK.RLOCK key r 60000")));
    let mut r = waiter!(server, "LOCK.RLOCK key r 60000 WAIT 0");
    assert_eq!(queue_of(&mut a, "key"), ["w", "r"]);
    cmd!(a, "LOCK.RELEASE key a");
    granted(&mut w);
    assert_eq!(queue_of(&mut a, "key"), ["r"]);
    cmd!(w, "LOCK.RELEASE key w");
    granted(&mut r);
}

#[test]
fn a_request_after_the_release_in_one_write_does_not_overtake_the_queue() {
    let (server, mut a) = held();
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let mut both = command!("LOCK.RELEASE key a").get_packed_command();
    both.extend(command!("LOCK.ACQUIRE key c 60000").get_packed_command());
    a.send_raw(&both);
    assert_eq!(int(&a.recv()), 0);
    assert!(is_nil(&a.recv()));
    granted(&mut b);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
}

#[test]
fn the_next_waiter_is_granted_within_the_release_whatever_the_protocol() {
    let (server, mut a) = Server::start_connected();
    for mut waiting in [server.connect(), server.connect_resp3()] {
        let token = int(&cmd!(a, "LOCK.ACQUIRE key a 60000"));
        send!(waiting, "LOCK.ACQUIRE key b 60000 WAIT 5000");
        server.await_blocked(&waiting);
        cmd!(a, "LOCK.RELEASE key a");
        // It is granted by the time of the release's reply, not only when the waiter reads its own.
        let hold = hold_of(&mut a, "key", "b").expect("b holds");
        assert!(hold.token > token);
        assert_eq!(hold.client, waiting.client_id());
        assert_eq!(granted(&mut waiting), hold.token);
        cmd!(a, "LOCK.RELEASE key b");
    }
}

#[test]
fn a_lease_begins_at_the_grant_and_not_at_the_request() {
    let (server, mut a) = held();
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 10000 WAIT 0");
    let mut waited = 0;
    eventually("b has waited a while", || {
        waited = lock_info(&mut a, "key").unwrap().queue[0].waited;
        waited >= 300
    });
    cmd!(a, "LOCK.RELEASE key a");
    granted(&mut b);
    let hold = hold_of(&mut b, "key", "b").unwrap();
    assert!((1..=10_000).contains(&hold.lease), "{hold:?}");
    assert!(hold.lease + hold.held <= 10_001, "{hold:?}");
    assert!(
        hold.lease + hold.held >= 9_999,
        "the wait of {waited} ms was taken off: {hold:?}"
    );
}

#[test]
fn a_queued_request_keeps_its_options() {
    let (server, mut a) = held();
    let fence = hold_of(&mut a, "key", "a").unwrap().token + 600_000_000;
    let mut b = waiter!(
        server,
        "LOCK.ACQUIRE key b 60000 WAIT 0 HOLDS 3 FENCE {fence}"
    );
    cmd!(a, "LOCK.RELEASE key a");
    assert!(granted(&mut b) >= fence);
    assert_eq!(hold_of(&mut a, "key", "b").unwrap().counts(), (3, 0));
}

#[test]
fn a_contended_acquisition_costs_two_commands() {
    const ROUNDS: usize = 10;
    let (server, mut a) = held();
    let owners: Vec<String> = (0..8).map(|n| format!("w{n}")).collect();
    let ask = |owner: &String| command!("LOCK.ACQUIRE key {owner} 60000 WAIT 0");
    let mut waiting = server.waiters(owners.iter().map(ask));
    cmd!(a, "CONFIG RESETSTAT");
    cmd!(a, "LOCK.RELEASE key a");
    for round in 1..=ROUNDS {
        for (conn, owner) in waiting.iter_mut().zip(&owners) {
            granted(conn);
            cmd!(conn, "LOCK.RELEASE key {owner}");
            if round < ROUNDS {
                conn.submit(&ask(owner));
            }
        }
    }
    let names = ["ACQUIRE", "RELEASE", "RENEW", "INFO", "SETTLE", "APPLY"];
    let calls = names.map(|name| server.calls(&format!("LOCK.{name}")));
    let sum: u64 = calls.iter().sum();
    // Plus the release by `a`. (Some servers count a blocked command when it is sent, some at its reply.)
    let most = 2 * (ROUNDS * owners.len()) as u64 + 1;
    assert!(
        (most - 8..=most).contains(&sum),
        "{sum} commands: {calls:?}"
    );
}

#[test]
fn a_wait_ends_in_null_at_its_limit_and_not_before() {
    let (server, mut a) = held();
    let mut b = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 1500");
    let queued = &lock_info(&mut a, "key").unwrap().queue[0];
    assert!(
        queued.left <= 1_500 && queued.waited + queued.left <= 1_500,
        "{queued:?}"
    );
    assert!(is_nil(&b.recv()));
    assert!(queue_of(&mut a, "key").is_empty());
    assert_eq!(holders_of(&mut a, "key"), ["a"]);
    assert_eq!(server.gauge("total_timeouts"), 1);
}

#[test]
fn a_wait_of_zero_or_of_the_largest_number_does_not_time_out() {
    let (server, mut a) = held();
    let mut forever = waiter!(server, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let longest: i64 = 1 << 53;
    let mut long = waiter!(server, "LOCK.ACQUIRE key c 60000 WAIT {longest}");
    let mut short = waiter!(server, "LOCK.ACQUIRE key d 60000 WAIT 1500");
    assert!(is_nil(&short.recv()));
    let info = lock_info(&mut a, "key").unwrap();
    let left: Vec<i64> = info.queue.iter().map(|queued| queued.left).collect();
    assert_eq!(left[0], -1);
    assert!(left[1] > longest - 60_000, "{left:?}");
    cmd!(a, "LOCK.RELEASE key a");
    granted(&mut forever);
    cmd!(forever, "LOCK.RELEASE key b");
    granted(&mut long);
}
