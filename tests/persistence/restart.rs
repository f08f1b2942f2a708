//! Holds and the token clock survive the process, in every way in which the server can keep its data.

use std::time::Instant;

use mortise_harness::{
    Conn, Snapshot, cmd, eventually, hold_of, int, is_nil, lock_info, try_cmd, wall_micros,
};

use crate::way::{ALL, Way, side_by_side};

const HALF_AN_HOUR: i64 = 1_800_000_000;

/// Locks of all kinds in two databases, each with its own history.
fn make_history(conn: &mut Conn) {
    for db in [0, 9] {
        cmd!(conn, "SELECT", db);
        cmd!(conn, "LOCK.ACQUIRE", "once", "a", 600_000);
        cmd!(conn, "LOCK.ACQUIRE", "counted", "a", 600_000, "HOLDS", 7);
        cmd!(
            conn,
            "LOCK.ACQUIRE",
            "most",
            "a",
            600_000,
            "HOLDS",
            i32::MAX
        );
        cmd!(conn, "LOCK.RLOCK", "most", "a", 600_000, "HOLDS", i32::MAX);
        for n in 0..50 {
            let lease = 600_000 + 1_000 * n;
            cmd!(
                conn,
                "LOCK.RLOCK",
                "read",
                format!("reader:{n}"),
                lease,
                "HOLDS",
                n + 1
            );
        }
        for n in (0..50).step_by(3) {
            cmd!(conn, "LOCK.RELEASE", "read", format!("reader:{n}"), "ALL");
        }
        cmd!(conn, "LOCK.RLOCK", "upgraded", "a", 600_000);
        cmd!(conn, "LOCK.WLOCK", "upgraded", "a", 600_000);
        cmd!(conn, "LOCK.ACQUIRE", "downgraded", "a", 600_000);
        cmd!(conn, "LOCK.RLOCK", "downgraded", "a", 600_000);
        cmd!(conn, "LOCK.RELEASE", "downgraded", "a", "WRITE");
        let token = int(&cmd!(conn, "LOCK.RLOCK", "fenced", "a", 600_000));
        cmd!(conn, "LOCK.FENCE", "fenced", "a", token + 1_000_000);
        cmd!(conn, "LOCK.ACQUIRE", "renewed", "a", 500);
        cmd!(conn, "LOCK.RENEW", "renewed", "a", 86_400_000);
        cmd!(conn, "LOCK.WLOCK", "passed", "a", 86_400_000, "HOLDS", 2);
        cmd!(conn, "LOCK.RLOCK", "passed", "a", 86_400_000);
        cmd!(conn, "LOCK.PASS", "passed", "a", "b", 600_000);
        cmd!(conn, "LOCK.PASS", "read", "reader:4", "passed on", 700_000);
        cmd!(conn, "LOCK.ACQUIRE", "revoked", "a", 600_000);
        cmd!(conn, "LOCK.REVOKE", "revoked", "a");
        cmd!(conn, "LOCK.REVOKE", "read", "reader:7");
        cmd!(conn, "LOCK.ACQUIRE", "released", "a", 600_000);
        cmd!(conn, "LOCK.RELEASE", "released", "a");
        cmd!(conn, "LOCK.ACQUIRE", "handed on", "a", 600_000);
        cmd!(conn, "LOCK.RELEASE", "handed on", "a");
        cmd!(conn, "LOCK.RLOCK", "handed on", "b", 600_000);
        cmd!(
            conn,
            "LOCK.ACQUIRE",
            &b"odd\0\r\n\xff"[..],
            vec![0xff_u8; 255],
            600_000
        );
        cmd!(conn, "SET", "unrelated", "value");
    }
    cmd!(conn, "SELECT", 0);
}

#[test]
fn holds_come_back_as_they_were_and_their_leases_keep_running() {
    for way in ALL {
        let mut server = way.start();
        make_history(&mut server.connect());
        let before = Snapshot::take(&server);
        assert_eq!(before.facts().len(), 2 * 12);
        way.come_back(&mut server);
        Snapshot::take(&server).assert_continues(&before);
        assert_eq!(int(&cmd!(server.connect(), "DBSIZE")), 13);
    }
}

#[test]
fn holds_come_back_a_second_time() {
    for way in ALL {
        let mut server = way.start();
        make_history(&mut server.connect());
        let before = Snapshot::take(&server);
        way.come_back(&mut server);
        way.come_back(&mut server);
        Snapshot::take(&server).assert_continues(&before);
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
        cmd!(conn, "LOCK.RELEASE", "counted", "a", "HOLDS", 2);
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
        assert_eq!(
            int(&cmd!(conn, "LOCK.RENEW", "key", "a", 1, "TOKEN", token)),
            token
        );
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
    let losses: [&[&str]; 3] = [
        &["LOCK.RELEASE", "key", "a"],
        &["DEL", "key"],
        &["FLUSHALL"],
    ];
    for way in ALL {
        for loss in losses {
            let mut server = way.start();
            let mut conn = server.connect();
            // So far ahead that the wall clock cannot make up for a lost one.
            let last = wall_micros() + HALF_AN_HOUR;
            cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000, "FENCE", last);
            conn.cmd(loss);
            way.come_back(&mut server);
            let mut conn = server.connect();
            let next = int(&cmd!(conn, "LOCK.ACQUIRE", "new", "b", 60_000));
            assert!(next > last, "{loss:?}: {next} > {last}");
        }
    }
}

#[test]
fn tokens_exceed_a_fenced_one_and_one_whose_lease_has_ended() {
    for way in ALL {
        let mut server = way.start();
        let mut conn = server.connect();
        let last = wall_micros() + HALF_AN_HOUR;
        cmd!(conn, "LOCK.ACQUIRE", "key", "a", 60_000);
        cmd!(conn, "LOCK.FENCE", "key", "a", last);
        cmd!(conn, "LOCK.RELEASE", "key", "a");
        cmd!(conn, "LOCK.ACQUIRE", "short", "a", 1, "FENCE", last + 5);
        eventually("it is swept", || int(&cmd!(conn, "EXISTS", "short")) == 0);
        way.come_back(&mut server);
        let next = int(&cmd!(server.connect(), "LOCK.ACQUIRE", "new", "b", 60_000));
        assert!(next > last + 5, "{next} > {last}");
    }
}

#[test]
fn a_token_clock_ahead_of_the_wall_clock_jumps_by_a_minute_after_a_restart() {
    for way in ALL {
        let mut server = way.start();
        let last = wall_micros() + HALF_AN_HOUR;
        cmd!(server.connect(), "LOCK.ACQUIRE key a 60000 FENCE {last}");
        way.come_back(&mut server);
        let mut conn = server.connect();
        assert_eq!(hold_of(&mut conn, "key", "a").unwrap().token, last);
        let next = int(&cmd!(conn, "LOCK.ACQUIRE", "new", "b", 60_000));
        assert!(next >= last + 60_000_000, "{next}, {last}");
        assert!(next <= wall_micros() + 2 * HALF_AN_HOUR, "{next}");
    }
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
