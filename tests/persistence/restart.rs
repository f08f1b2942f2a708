//! Holds and the token clock survive the process, in every way in which the server can keep its data.

use std::time::Instant;

use mortise_harness::{
    HISTORY, Server, Snapshot, cmd, command_of, eventually, hold_of, int, is_nil, lock_info,
    make_history, try_cmd, wall_micros,
};

use crate::way::{ALL, Way, side_by_side};

const HALF_AN_HOUR: i64 = 1_800_000_000;

#[test]
fn holds_come_back_as_they_were_and_their_leases_keep_running() {
    for way in ALL {
        let mut server = way.start();
        make_history(&mut server.connect());
        let before = Snapshot::take(&server);
        assert_eq!(before.facts().len(), HISTORY);
        for _ in 0..2 {
            way.come_back(&mut server);
            Snapshot::take(&server).assert_continues(&before);
        }
    }
}

#[test]
fn changes_after_the_data_was_written_come_back_as_well() {
    for way in ALL.into_iter().filter(|way| way.keeps_the_tail()) {
        let mut server = way.start();
        let mut conn = server.connect();
        make_history(&mut conn);
        way.write_out(&server);
        cmd!(conn, "LOCK.RELEASE", "once", "a");
        cmd!(conn, "LOCK.RELEASE counted a WRITE HOLDS 2");
        cmd!(conn, "LOCK.RELEASE", "read", "reader:1", "ALL");
        cmd!(conn, "LOCK.RLOCK", "read", "late", 700_000);
        cmd!(conn, "LOCK.RENEW", "read", "reader:2", 700_000);
        cmd!(conn, "LOCK.PASS", "read", "reader:5", "late too", 700_000);
        cmd!(conn, "LOCK.PASS", "passed", "b", "c", 700_000);
        cmd!(conn, "LOCK.ACQUIRE", "late", "a", 700_000);
        cmd!(conn, "LOCK.REVOKE", "upgraded", "a");
        cmd!(conn, "LOCK.LEAVE", "revoked", "a");
        cmd!(conn, "LOCK.ACQUIRE", "revoked", "a", 700_000);
        let before = Snapshot::take(&server);
        // The data is not written again: later changes must come from the tail of the file.
        match way {
            Way::RewritePreamble | Way::RewriteCommands => {
                server.sigkill();
                server.start_again();
            }
            way => way.come_back(&mut server),
        }
        Snapshot::take(&server).assert_continues(&before);
    }
}

#[test]
fn a_hold_that_came_back_is_renewed_fenced_and_released_by_its_token() {
    for way in ALL {
        let mut server = way.start();
        let token = int(&cmd!(server.connect(), "LOCK.ACQUIRE key a 60000 HOLDS 2"));
        cmd!(server.connect(), "LOCK.RLOCK", "read", "a", 60_000);
        way.come_back(&mut server);
        let mut conn = server.connect();
        for acquire in ["LOCK.ACQUIRE", "LOCK.RLOCK"] {
            assert!(is_nil(&cmd!(conn, acquire, "key", "b", 60_000)));
        }
        assert!(is_nil(&cmd!(conn, "LOCK.ACQUIRE", "read", "b", 60_000)));
        assert!(!is_nil(&cmd!(conn, "LOCK.RLOCK", "read", "b", 60_000)));
        let renewed = cmd!(conn, "LOCK.RENEW key a 1 TOKEN {token}");
        assert_eq!(int(&renewed), token);
        assert_eq!(int(&cmd!(conn, "LOCK.FENCE", "key", "a", 1)), token);
        assert_eq!(int(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000)), token);
        for left in [2, 1, 0] {
            let released = cmd!(conn, "LOCK.RELEASE", "key", "a", "TOKEN", token);
            assert_eq!(int(&released), left);
        }
        assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
    }
}

#[test]
fn a_hold_that_was_revoked_is_still_revoked_after_a_restart() {
    for way in ALL {
        let mut server = way.start();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
        for owner in ["a", "b", "c"] {
            cmd!(conn, "LOCK.RLOCK", "read", owner, 60_000);
        }
        cmd!(conn, "LOCK.REVOKE", "key", "a");
        cmd!(conn, "LOCK.REVOKE", "read", "b");
        way.come_back(&mut server);
        let mut conn = server.connect();
        for (key, owner) in [("key", "a"), ("read", "b")] {
            assert!(hold_of(&mut conn, key, owner).unwrap().revoked);
            assert!(is_nil(&cmd!(conn, "LOCK.RENEW", key, owner, 600_000)));
            let error = try_cmd!(conn, "LOCK.RLOCK", key, owner, 600_000).unwrap_err();
            assert!(error.starts_with("REVOKED "), "{error}");
        }
        for owner in ["a", "c"] {
            assert!(!is_nil(&cmd!(conn, "LOCK.RENEW", "read", owner, 600_000)));
        }
        assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", "key", "a")), 0);
        assert!(!is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000)));
    }
}

#[test]
fn the_connection_of_a_hold_is_unknown_after_a_restart() {
    for way in [Way::Save, Way::AppendAlways, Way::RewriteCommands] {
        let mut server = way.start();
        cmd!(server.connect(), "LOCK.ACQUIRE", "key", "a", 60_000);
        way.come_back(&mut server);
        let hold = hold_of(&mut server.connect(), "key", "a").unwrap();
        assert_eq!(hold.client, 0);
    }
}

#[test]
fn tokens_exceed_the_last_one_though_its_lock_is_gone() {
    let losses = ["LOCK.RELEASE key a", "DEL key", "FLUSHALL"];
    for way in ALL {
        for loss in losses {
            let mut server = way.start();
            let mut conn = server.connect();
            // So far ahead that the wall clock cannot make up for a lost one.
            let last = wall_micros() + HALF_AN_HOUR;
            cmd!(conn, "LOCK.ACQUIRE key a 60000 FENCE {last}");
            conn.run(&command_of(loss));
            assert_tokens_exceed(way, &mut server, last);
        }
    }
}

#[test]
fn tokens_exceed_a_fenced_one_and_one_whose_lease_has_ended() {
    for way in ALL {
        let mut server = way.start();
        let mut conn = server.connect();
        let last = wall_micros() + HALF_AN_HOUR;
        cmd!(conn, "LOCK.ACQUIRE key a 60000");
        cmd!(conn, "LOCK.FENCE key a {last}");
        cmd!(conn, "LOCK.RELEASE key a");
        let last = last + 5;
        cmd!(conn, "LOCK.ACQUIRE short a 1 FENCE {last}");
        eventually("it is swept", || int(&cmd!(conn, "EXISTS", "short")) == 0);
        assert_tokens_exceed(way, &mut server, last);
    }
}

/// After a restart the next token exceeds this one by a minute, for tokens that may have been lost.
#[track_caller]
fn assert_tokens_exceed(way: Way, server: &mut Server, last: i64) {
    way.come_back(server);
    let next = int(&cmd!(server.connect(), "LOCK.ACQUIRE new b 60000"));
    assert!(next >= last + 60_000_000, "{next}, {last}");
    assert!(next <= wall_micros() + 2 * HALF_AN_HOUR, "{next}");
}

#[test]
fn a_lease_that_ran_out_while_the_server_was_down_has_ended() {
    side_by_side(|way| {
        let mut server = way.start();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.RLOCK", "read", "short", 500, "HOLDS", 3);
        cmd!(conn, "LOCK.RLOCK", "read", "long", 60_000);
        cmd!(conn, "LOCK.ACQUIRE", "key", "a", 500);
        cmd!(conn, "LOCK.ACQUIRE", "other", "a", 500);
        let taken = Instant::now();
        let run_out = || eventually("the leases are over", || taken.elapsed().as_millis() > 500);
        way.come_back_after(&mut server, run_out);
        run_out();
        let mut conn = server.connect();
        assert_eq!(lock_info(&mut conn, "key"), None);
        assert!(is_nil(&cmd!(conn, "LOCK.RENEW", "key", "a", 60_000)));
        assert!(!is_nil(&cmd!(conn, "LOCK.ACQUIRE", "key", "b", 60_000)));
        let read = lock_info(&mut conn, "read").unwrap();
        assert_eq!((read.holders, &read.holds[0].owner[..]), (1, &b"long"[..]));
        eventually("it is swept though no command names it", || {
            int(&cmd!(conn, "EXISTS", "other")) == 0
        });
    });
}

#[test]
fn a_lease_that_ends_after_the_restart_is_swept_though_no_command_names_the_lock() {
    side_by_side(|way| {
        let mut server = way.start();
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "key", "a", 700);
        cmd!(conn, "LOCK.RLOCK", "read", "a", 60_000);
        cmd!(conn, "SELECT", 9);
        cmd!(conn, "LOCK.ACQUIRE", "key", "a", 800);
        cmd!(conn, "LOCK.RLOCK", "read", "a", 700);
        way.come_back(&mut server);
        let mut conn = server.connect();
        eventually("only the long lease is left", || {
            let keyspace = server.info("keyspace");
            if keyspace.len() == 1 {
                Ok(())
            } else {
                Err(keyspace)
            }
        });
        assert!(hold_of(&mut conn, "read", "a").is_some());
        assert_eq!(server.gauge("locks"), 1);
    });
}
