//! What the options of the commands do, and which are refused. What a hold becomes is the core's to decide: `core/tests/rules/locks`.

use mortise_harness::{
    Conn, Server, assert_error, cmd, command_of, hold_of, int, is_nil, lock_info, refused,
    wall_micros,
};

/// How far ahead of the wall clock a requested token may be: one hour, in microseconds.
const HOUR: i64 = 3_600_000_000;

/// Makes `a` alone hold `key` twice in both modes, for a minute, and returns the token.
fn hold(conn: &mut Conn) -> i64 {
    cmd!(conn, "DEL key");
    cmd!(conn, "LOCK.WLOCK key a 60000 HOLDS 2");
    int(&cmd!(conn, "LOCK.RLOCK key a 60000 HOLDS 2"))
}

#[test]
fn options_come_in_any_order_and_any_case() {
    let (_server, mut conn) = Server::start_connected();
    for acquire in ["LOCK.ACQUIRE", "lock.wlock", "Lock.RLock"] {
        for options in [
            "WAIT 1000 HOLDS 3 FENCE 7",
            "FENCE 7 WAIT 1000 HOLDS 3",
            "holds 3 fence 7 wait 1000",
            "Fence 7 hOlDs 3 waiT 1000",
        ] {
            assert!(int(&cmd!(conn, "{acquire} key a 10000 {options}")) > 7);
            let hold = hold_of(&mut conn, "key", "a").unwrap();
            assert_eq!(hold.write + hold.read, 3, "{options}");
            cmd!(conn, "LOCK.RELEASE key a ALL");
        }
    }
}

#[test]
fn a_token_means_the_hold_of_that_token_and_no_other() {
    let (_server, mut conn) = Server::start_connected();
    for command in [
        "LOCK.RELEASE key a READ",
        "LOCK.RELEASE key a ALL",
        "LOCK.RENEW key a 600000",
        "LOCK.PASS key a b 600000",
        "LOCK.REVOKE key a",
    ] {
        let old = hold(&mut conn);
        let token = hold(&mut conn);
        let before = lock_info(&mut conn, "key").unwrap();
        for wrong in [old, token - 1, token + 1, 1, (1 << 53) - 1] {
            let reply = cmd!(conn, "{command} TOKEN {wrong}");
            assert!(is_nil(&reply), "{command} TOKEN {wrong}: {reply:?}");
        }
        let after = lock_info(&mut conn, "key").unwrap();
        assert_eq!(after.facts(), before.facts(), "{command}");
        assert!(after.holds[0].lease <= 60_000 && !after.holds[0].revoked);
        let reply = cmd!(conn, "{command} token {token}");
        assert!(!is_nil(&reply), "{command}");
    }
}

#[test]
fn a_release_lowers_the_count_that_its_options_name() {
    let (_server, mut conn) = Server::start_connected();
    for (options, left) in [
        ("READ", (2, 1)),
        ("WRITE", (1, 2)),
        ("READ HOLDS 0", (2, 0)),
        ("HOLDS 1 write", (1, 2)),
        ("WRITE HOLDS 7", (2, 2)),
    ] {
        let token = hold(&mut conn);
        let reply = int(&cmd!(conn, "LOCK.RELEASE key a {options}"));
        let hold = hold_of(&mut conn, "key", "a").unwrap();
        assert_eq!((hold.counts(), hold.token), (left, token), "{options}");
        assert_eq!(reply, left.0 + left.1, "{options}");
    }
    hold(&mut conn);
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE key a ALL")), 0);
    assert_eq!(int(&cmd!(conn, "EXISTS key")), 0);
    assert!(is_nil(&cmd!(conn, "LOCK.RELEASE key a ALL")));
    assert_eq!(int(&cmd!(conn, "EXISTS key")), 0);
}

#[test]
fn an_owner_of_both_modes_must_name_one_or_drop_all() {
    let (_server, mut conn) = Server::start_connected();
    let token = hold(&mut conn);
    for options in ["", "HOLDS 1", "HOLDS 0", &format!("TOKEN {token}")] {
        let error = refused!(conn, "ERR ", "LOCK.RELEASE key a {options}");
        for named in ["READ", "WRITE", "ALL"] {
            assert!(error.contains(named), "{options}: {error}");
        }
    }
    assert_eq!(hold_of(&mut conn, "key", "a").unwrap().counts(), (2, 2));
}

/// The largest number in an error's text before `, got`: the bound it names.
#[track_caller]
fn bound_named_in(error: &str) -> i64 {
    let (before, _) = error.split_once(", got").unwrap_or((error, ""));
    let numbers = before.split(|c: char| !c.is_ascii_digit());
    let bound = numbers.filter_map(|number| number.parse().ok()).max();
    bound.unwrap_or_else(|| panic!("{error:?} names no bound"))
}

#[test]
fn a_fence_up_to_an_hour_ahead_of_the_clock_is_granted_and_one_above_is_refused() {
    let (_server, mut conn) = Server::start_connected();
    for acquire in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        let before = wall_micros();
        let too_high = before + 2 * HOUR;
        let error = refused!(conn, "ERR ", "{acquire} key a 10000 FENCE {too_high}");
        let after = wall_micros();
        assert!(error.contains("FENCE"), "{error}");
        let bound = bound_named_in(&error);
        assert!((before + HOUR..=after + HOUR).contains(&bound), "{error}");
        assert_eq!(int(&cmd!(conn, "EXISTS key")), 0);
        // The refused one has not moved the tokens.
        if acquire == "LOCK.ACQUIRE" {
            assert!(int(&cmd!(conn, "LOCK.ACQUIRE other a 10000")) <= wall_micros());
        }
        let token = cmd!(conn, "{acquire} key a 10000 FENCE {bound}");
        assert_eq!(int(&token), bound);
        cmd!(conn, "LOCK.RELEASE key a");
        // Repeated requests cannot use up the numbers.
        let next = int(&cmd!(conn, "{acquire} key a 10000"));
        assert_eq!(next, bound + 1);
        cmd!(conn, "LOCK.RELEASE key a");
    }
}

/// Options that a command does not have, that it was given twice or without a value, or that exclude each other; and what the error names.
const REFUSED: [(&str, &[(&str, &str)]); 8] = [
    (
        "LOCK.RLOCK key b 1000",
        &[
            ("PATIENCE 5", "PATIENCE"),
            ("WAITS 5", "WAITS"),
            ("WAI 5", "WAI"),
            ("AFTER 5", "AFTER"),
            ("TOKEN", "TOKEN"),
            ("TOKEN 5 TOKEN 5", "TOKEN"),
            ("WAIT 5 HOLDS 2 MAIL", "MAIL"),
            ("MAIL box MAIL box", "MAIL"),
            ("HOLDS 2 5", "5"),
            ("WAIT", "WAIT"),
            ("HOLDS", "HOLDS"),
            ("FENCE", "FENCE"),
            ("HOLDS 2 WAIT", "WAIT"),
            ("WAIT 5 WAIT 5", "WAIT"),
            ("HOLDS 2 WAIT 5 holds 2", "HOLDS"),
            ("FENCE 5 FENCE 5", "FENCE"),
            ("LIMIT 3 LIMIT 3", "option LIMIT given twice"),
            (
                "HOLDS 4 LIMIT 3",
                "HOLDS must be at most 3 (LIMIT), got '4'",
            ),
        ],
    ),
    (
        "LOCK.WLOCK key b 1000",
        &[
            ("PATIENCE 5", "PATIENCE"),
            ("LIMIT 3", "LIMIT"),
            ("WAIT 5 WAIT 5", "WAIT"),
        ],
    ),
    (
        "LOCK.RELEASE key a",
        &[
            ("ALL READ", ""),
            ("ALL WRITE", ""),
            ("READ ALL", ""),
            ("ALL HOLDS 1", ""),
            ("HOLDS 1 ALL", ""),
            ("READ WRITE", ""),
            ("WRITE READ", ""),
            ("READ READ", "READ"),
            ("WRITE write", "WRITE"),
            ("ALL ALL", "ALL"),
            ("READ HOLDS 1 HOLDS 1", "HOLDS"),
            ("ALL TOKEN 1 TOKEN 1", "TOKEN"),
            ("READ HOLDS", "HOLDS"),
            ("ALL TOKEN", "TOKEN"),
            ("READ TWICE", "TWICE"),
            ("READ WAIT 5", "WAIT"),
            ("READ FENCE 5", "FENCE"),
            ("READ 5", "5"),
        ],
    ),
    (
        "LOCK.RENEW key a 600000",
        &[
            ("TOKEN", "TOKEN"),
            ("TOKEN 1 TOKEN 1", "TOKEN"),
            ("TOKEN 1 more", "more"),
            ("HOLDS 1", "HOLDS"),
            ("WAIT 1", "WAIT"),
        ],
    ),
    (
        "LOCK.PASS key a b 600000",
        &[
            ("TOKEN", "TOKEN"),
            ("TOKEN 1 TOKEN 1", "TOKEN"),
            ("TOKEN 1 more", "more"),
            ("HOLDS 1", "HOLDS"),
            ("WAIT 1", "WAIT"),
            ("FENCE 1", "FENCE"),
        ],
    ),
    (
        "LOCK.REVOKE key a",
        &[
            ("TOKEN", "TOKEN"),
            ("TOKEN 1 TOKEN 1", "TOKEN"),
            ("TOKEN 1 more", "more"),
            ("60000", "60000"),
            ("FOR 1", "FOR"),
            ("ALL", "ALL"),
        ],
    ),
    (
        "LOCK.INFO key",
        &[
            ("OWNER", "OWNER"),
            ("COUNT", "COUNT"),
            ("OWNER a OWNER a", "OWNER"),
            ("COUNT 1 OWNER a COUNT 1", "COUNT"),
            ("HOLDS 1", "HOLDS"),
            ("a", "a"),
        ],
    ),
    (
        "LOCK.TOP",
        &[
            ("COUNT", "COUNT"),
            ("5", "5"),
            ("COUNT 1 COUNT 1", "COUNT"),
            ("SIDEWAYS", "SIDEWAYS"),
        ],
    ),
];

#[test]
fn an_option_unknown_given_twice_or_without_its_value_is_an_error_that_names_it() {
    let (_server, mut conn) = Server::start_connected();
    hold(&mut conn);
    let before = lock_info(&mut conn, "key").unwrap();
    for (command, cases) in REFUSED {
        for (options, named) in cases {
            let line = format!("{command} {options}");
            let error = assert_error(conn.try_run(&command_of(&line)), "ERR ");
            let names_it = error.to_uppercase().contains(&named.to_uppercase());
            assert!(names_it, "{line}: {error}");
        }
    }
    refused!(conn, "ERR ", "LOCK.RLOCK", "key", "a", 1, "", 5);
    // It takes no options.
    refused!(conn, "ERR ", "LOCK.FENCE key a 5 TOKEN 5");
    let after = lock_info(&mut conn, "key").unwrap();
    assert_eq!(after.facts(), before.facts());
    assert!(after.holds[0].lease <= 60_000 && !after.holds[0].revoked);
}
