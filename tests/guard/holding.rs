//! Which guards run their command, and which get NOTHELD.

use std::thread;
use std::time::Duration;

use mortise_harness::{
    Conn, Server, bytes, cmd, command, eventually, granted, int, is_nil, lock_info, refused, send,
    text, try_cmd, wait_for_sync,
};

use super::{assert_not_held, guard, held};

/// Sends a guard without a command and one with a command, and checks that nothing runs.
#[track_caller]
fn assert_is_not_let_through(conn: &mut Conn, key: &str, owner: &str, token: i64) {
    assert_not_held(try_cmd!(conn, "LOCK.GUARD {key} {owner} {token}"));
    assert_not_held(try_cmd!(
        conn,
        "LOCK.GUARD {key} {owner} {token} SET data late"
    ));
    assert!(is_nil(&cmd!(conn, "GET data")));
}

#[test]
fn a_guard_runs_the_command_of_an_owner_that_holds_by_the_token() {
    let (server, mut conn) = Server::start_connected();
    for (n, acquire) in ["LOCK.ACQUIRE", "LOCK.RLOCK"].into_iter().enumerate() {
        let token = int(&cmd!(conn, "{acquire} key a 60000"));
        assert_eq!(int(&cmd!(conn, "LOCK.GUARD key a {token}")), token);
        let set = cmd!(conn, "LOCK.GUARD key a {token} SET data {n}");
        assert_eq!(text(&set), "OK");
        // Any connection that knows owner and token may send it.
        let mut other = server.connect();
        let got = cmd!(other, "lock.guard key a {token} get data");
        assert_eq!(text(&got), n.to_string());
        cmd!(conn, "LOCK.RELEASE key a");
    }
}

#[test]
fn a_guard_of_anybody_else_runs_nothing() {
    let (_server, mut conn) = Server::start_connected();
    assert_is_not_let_through(&mut conn, "key", "a", 1);
    assert_eq!(int(&cmd!(conn, "EXISTS key")), 0, "it creates no key");
    let token = held(&mut conn, "key");
    for (owner, token) in [
        ("b", token),
        ("A", token),
        ("aa", token),
        ("a", token - 1),
        ("a", token + 1),
        ("a", 1),
        ("a", (1 << 53) - 1),
    ] {
        assert_is_not_let_through(&mut conn, "key", owner, token);
    }
    assert_is_not_let_through(&mut conn, "another", "a", token);
    cmd!(conn, "SELECT 1");
    assert_is_not_let_through(&mut conn, "key", "a", token);
    cmd!(conn, "SELECT 0");
    cmd!(conn, "LOCK.RELEASE key a");
    assert_is_not_let_through(&mut conn, "key", "a", token);
}

#[test]
fn a_client_that_slept_through_its_lease_harms_nothing() {
    let (server, mut a) = Server::start_connected();
    let old = int(&cmd!(a, "LOCK.ACQUIRE key a 50"));
    let mut b = server.connect();
    send!(b, "LOCK.ACQUIRE key b 60000 WAIT 0");
    let new = granted(&mut b);
    cmd!(b, "LOCK.GUARD key b {new} SET data of-b");
    assert_not_held(guard(&mut a, old, "SET data of-a"));
    assert_eq!(text(&cmd!(b, "GET data")), "of-b");
    // Nor may it write by the other's token.
    assert_not_held(guard(&mut a, new, "SET data of-a"));
}

#[test]
fn a_guard_by_an_expired_lease_runs_nothing_though_the_key_is_still_there() {
    let (server, mut conn) = Server::start_connected();
    // All in one transaction, so that no timer runs in between.
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 30"));
    let replies = conn.pipeline(&[
        command!("DEBUG SLEEP 0.05"),
        command!("EXISTS key"),
        command!("LOCK.GUARD key a {token} SET data late"),
        command!("EXISTS key data"),
    ]);
    let [_, before, guarded, after] = <[_; 4]>::try_from(replies).unwrap();
    assert_eq!(int(&before.unwrap()), 1);
    assert_not_held(guarded);
    assert_eq!(int(&after.unwrap()), 0);
    assert_eq!(server.gauge("total_expiries"), 1);
}

#[test]
fn a_guard_of_one_of_many_readers_runs_for_as_long_as_its_own_lease() {
    let (_server, mut conn) = Server::start_connected();
    let short = int(&cmd!(conn, "LOCK.RLOCK key short 40"));
    let long = int(&cmd!(conn, "LOCK.RLOCK key long 60000"));
    eventually("the short lease is over", || {
        lock_info(&mut conn, "key").is_some_and(|info| info.holders == 1)
    });
    assert_is_not_let_through(&mut conn, "key", "short", short);
    assert_is_not_let_through(&mut conn, "key", "short", long);
    assert_eq!(int(&cmd!(conn, "LOCK.GUARD key long {long}")), long);
}

#[test]
fn after_an_upgrade_or_a_fence_only_the_new_token_counts() {
    let (_server, mut conn) = Server::start_connected();
    let read = int(&cmd!(conn, "LOCK.RLOCK key a 60000"));
    let upgraded = int(&cmd!(conn, "LOCK.WLOCK key a 60000"));
    assert_is_not_let_through(&mut conn, "key", "a", read);
    let fenced = int(&cmd!(conn, "LOCK.FENCE", "key", "a", upgraded + 7));
    assert_is_not_let_through(&mut conn, "key", "a", upgraded);
    assert_eq!(int(&cmd!(conn, "LOCK.GUARD key a {fenced}")), fenced);
    // Neither re-entry nor a downgrade changes the token.
    cmd!(conn, "LOCK.WLOCK key a 60000");
    cmd!(conn, "LOCK.RELEASE key a WRITE HOLDS 0");
    assert_eq!(int(&cmd!(conn, "LOCK.GUARD key a {fenced}")), fenced);
}

#[test]
fn arguments_out_of_their_bounds_are_errors_and_nothing_runs() {
    let (_server, mut conn) = Server::start_connected();
    let token = held(&mut conn, "key");
    let long = "x".repeat(256);
    for (arguments, names) in [
        ("", "wrong number of arguments"),
        ("key", "wrong number of arguments"),
        ("key a", "wrong number of arguments"),
        (&format!("key {long} {token} SET data 1"), "owner"),
        ("key a 0 SET data 1", "token"),
        ("key a -1 SET data 1", "token"),
        ("key a 9007199254740992 SET data 1", "token"),
        ("key a SET SET data 1", "token"),
    ] {
        let error = refused!(conn, "ERR ", "LOCK.GUARD {arguments}");
        assert!(error.contains(names), "{arguments}: {error}");
    }
    refused!(conn, "ERR owner", "LOCK.GUARD", "key", "", token, "PING");
    cmd!(conn, "SET string value");
    refused!(conn, "WRONGTYPE ", "LOCK.GUARD string a {token} DEL string");
    assert_eq!(int(&cmd!(conn, "EXISTS data string")), 1);
}

#[test]
fn guards_work_with_owners_and_keys_of_any_bytes() {
    let (_server, mut conn) = Server::start_connected();
    let every: Vec<u8> = (0..255).collect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", &every, &every, 60_000));
    let set = command!("LOCK.GUARD", &every, &every, token, "SET", "data", &every);
    assert_eq!(text(&conn.run(&set)), "OK");
    assert_eq!(bytes(&cmd!(conn, "GET data")), every);
}

#[test]
fn after_a_promotion_no_guard_runs_until_the_old_primary_must_have_stopped() {
    let primary = Server::start();
    let replica = Server::builder()
        .module_arg("max-lease", "20000")
        .replica_of(&primary)
        .start();
    wait_for_sync(&primary, &replica);
    let mut conn = primary.connect();
    let token = int(&cmd!(conn, "LOCK.ACQUIRE key a 20000"));
    wait_for_sync(&primary, &replica);
    let mut conn = replica.connect();
    // RENEW is refused for as long as the grace exceeds the longest lease.
    cmd!(conn, "CONFIG SET lock.grace 22000");
    cmd!(conn, "REPLICAOF NO ONE");
    let guard = command!("LOCK.GUARD key a {token} INCR data");
    let mut refused = 0;
    let ran = loop {
        match conn.try_run(&guard) {
            Ok(reply) => break int(&reply),
            Err(error) => assert!(error.starts_with("TRYAGAIN "), "{error}"),
        }
        let renewed = try_cmd!(conn, "LOCK.RENEW key a 20000");
        if let Err(error) = renewed {
            assert!(error.starts_with("TRYAGAIN "), "{error}");
            refused += 1;
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(ran, 1, "no refused command has run");
    assert!(refused > 0);
    assert!(replica.gauge("grace_left_ms") > 0, "the grace goes on");
}
