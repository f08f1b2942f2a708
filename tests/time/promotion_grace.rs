//! `lock.promotion-grace`: the grace after a promotion, where it differs from the one after a start.

use super::{grace_left, promote, with_grace};
use mortise_harness::{
    Builder, Server, cmd, command, granted, hold_of, int, is_nil, refused, wait_for_sync, waiter,
};

/// The server's grace after a start, and after a promotion.
fn with_graces(grace: u64, promotion_grace: i64) -> Builder {
    with_grace(grace, 60_000).module_arg("promotion-grace", &promotion_grace.to_string())
}

/// A primary on which `a` holds `held`, and a replica with the settings.
fn pair(replica: Builder) -> (Server, Server) {
    let primary = Server::start();
    cmd!(primary.connect(), "LOCK.ACQUIRE held a 60000");
    let replica = replica.replica_of(&primary).start();
    wait_for_sync(&primary, &replica);
    (primary, replica)
}

#[test]
fn with_0_a_promoted_server_grants_and_renews_at_once() {
    let (_primary, replica) = pair(with_graces(0, 0));
    let mut conn = replica.connect();
    cmd!(conn, "CONFIG SET lock.grace 600000");
    promote(&replica);
    assert_eq!(grace_left(&replica), 0);
    let token = hold_of(&mut conn, "held", "a").expect("a hold").token;
    assert_eq!(int(&cmd!(conn, "LOCK.RENEW held a 60000")), token);
    assert!(int(&cmd!(conn, "LOCK.ACQUIRE free b 1000")) > token);
    assert_eq!(int(&cmd!(conn, "LOCK.ACQUIRE held a 1000")), token);
}

#[test]
fn the_grace_after_a_start_runs_on_over_a_promotion() {
    for promotion_grace in [0, 100] {
        let (_primary, replica) = pair(with_graces(600_000, promotion_grace));
        let mut conn = replica.connect();
        promote(&replica);
        assert!((1..=600_000).contains(&grace_left(&replica)));
        assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE free b 1000")));
        let token = hold_of(&mut conn, "held", "a").expect("a hold").token;
        // As in every grace after a start, known holds are renewed.
        assert_eq!(int(&cmd!(conn, "LOCK.RENEW held a 60000")), token);
        let log = replica.log();
        assert!(log.contains("the server has become a primary: for "));
    }
}

#[test]
fn waiters_are_served_when_the_grace_after_the_start_ends() {
    let (_primary, replica) = pair(with_graces(4_000, 0));
    promote(&replica);
    let mut b = waiter!(replica, "LOCK.ACQUIRE free b 1000 WAIT 0");
    granted(&mut b);
    assert_eq!(grace_left(&replica), 0);
}

#[test]
fn it_may_be_longer_than_the_grace_after_a_start() {
    let (_primary, replica) = pair(with_graces(0, 600_000));
    let mut conn = replica.connect();
    assert_eq!(grace_left(&replica), 0);
    promote(&replica);
    assert!(grace_left(&replica) > 300_000);
    assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE free b 1000")));
    // The old primary may still be granting.
    refused!(conn, "TRYAGAIN ", "LOCK.RENEW held a 60000");
}

#[test]
fn with_minus_1_it_is_the_same_as_the_grace_after_a_start() {
    let (_primary, replica) = pair(with_graces(0, -1));
    let mut conn = replica.connect();
    cmd!(conn, "CONFIG SET lock.grace 600000");
    promote(&replica);
    assert!(grace_left(&replica) > 300_000);
}

#[test]
fn a_server_whose_clients_confirm_their_holds_trusts_itself_after_a_stall() {
    for (promotion_grace, trusts) in [(0, true), (60_000, false)] {
        let server = with_graces(1, promotion_grace)
            .config("enable-debug-command", "yes")
            .start();
        let mut conn = server.connect();
        server.await_gauge("grace_left_ms", 0);
        // In one write: the request comes before the tick after the stall.
        let replies = conn.pipeline(&[
            command!("DEBUG SLEEP 2"),
            command!("LOCK.ACQUIRE free a 1000"),
        ]);
        let reply = replies[1].as_ref().expect("a reply");
        assert_eq!(!is_nil(reply), trusts, "{promotion_grace}");
    }
}

#[test]
fn a_short_one_logs_a_warning() {
    let server = with_graces(60_000, 59_999).start();
    let log = server.log();
    assert!(log.contains("lock.promotion-grace 59999 is less than lock.max-lease 60000"));
    assert!(!log.contains("lock.grace 60000 is less"));
    let log = with_graces(60_000, 0).start().log();
    assert!(!log.contains("is less than lock.max-lease"), "{log}");
}

#[test]
fn info_says_that_without_it_only_confirmed_holds_are_safe() {
    let lease: i64 = 60_000;
    let needed = lease + 2_000 + 3_000;
    let promotion =
        "lock.promotion-grace 0 is less than 65000, which is safe only if all clients confirm";
    let start = "lock.grace 59999 is less than lock.max-lease 60000";
    for (grace, promotion_grace, missing) in [
        (lease, 0, &[promotion][..]),
        (lease - 1, 0, &[promotion, start]),
        (lease - 1, needed, &[start]),
        (lease, needed, &[]),
        (needed, -1, &[]),
    ] {
        let server = with_graces(grace.unsigned_abs(), promotion_grace)
            .config("min-replicas-max-lag", "2")
            .config("min-replicas-to-write", "1")
            .start();
        let lines = server.info("lock");
        let said = &lines["lock_failover_missing"];
        assert_eq!(lines["lock_failover_safe"] == "1", missing.is_empty());
        assert_eq!(said.is_empty(), missing.is_empty(), "{said}");
        for part in missing {
            assert!(said.contains(part), "{said}");
        }
    }
}
