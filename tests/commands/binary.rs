//! Keys and owners are byte strings: no byte is special, and none is lost.

use std::iter;

use mortise_harness::{
    Conn, Server, assert_error, bytes, cmd, command, hold_of, int, is_nil, lock_info, text, try_cmd,
};

/// Byte strings that a parser could misread.
fn odd_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    names.extend([
        b"\r\n".to_vec(),
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        b"\0\0\0".to_vec(),
        b"a\0b".to_vec(),
        b"%s%n%x".to_vec(),
        b"{tag}".to_vec(),
        b"\xff\xfe\xfd".to_vec(),
        "Schloß \u{1f512}".as_bytes().to_vec(),
        (0..=254).collect(),
        (1..=255).collect(),
        vec![0; 255],
    ]);
    names
}

/// Acquires, shows, renews, fences and releases `key` as `owner`.
#[track_caller]
fn round_trip(conn: &mut Conn, key: &[u8], owner: &[u8]) {
    let what = format!(
        "key '{}', owner '{}'",
        key.escape_ascii(),
        owner.escape_ascii()
    );
    let token = int(&cmd!(conn, "LOCK.ACQUIRE", key, owner, 60_000));
    assert_eq!(text(&cmd!(conn, "TYPE", key)), "mort-lock", "{what}");
    let lock = lock_info(conn, key).unwrap();
    assert_eq!(lock.facts(), [(owner.to_vec(), 1, 0, token)], "{what}");
    let hold = hold_of(conn, key, owner).unwrap();
    assert_eq!(hold.owner, owner, "{what}");
    for command in ["LOCK.RENEW", "LOCK.FENCE"] {
        assert_eq!(int(&cmd!(conn, command, key, owner, 1)), token, "{what}");
    }
    let passed = int(&cmd!(conn, "LOCK.PASS", key, owner, "another", 60_000));
    let back = int(&cmd!(conn, "LOCK.PASS", key, "another", owner, 60_000));
    assert!(token < passed && passed < back, "{what}");
    let lock = lock_info(conn, key).unwrap();
    assert_eq!(lock.facts(), [(owner.to_vec(), 1, 0, back)], "{what}");
    assert!(
        is_nil(&cmd!(conn, "LOCK.RLOCK", key, "another", 1)),
        "{what}"
    );
    assert_eq!(int(&cmd!(conn, "LOCK.RELEASE", key, owner)), 0, "{what}");
    assert_eq!(int(&cmd!(conn, "EXISTS", key)), 0, "{what}");
}

#[test]
fn an_owner_may_consist_of_any_bytes() {
    let server = Server::start();
    for mut conn in [server.connect(), server.connect_resp3()] {
        for owner in odd_names() {
            round_trip(&mut conn, b"key", &owner);
        }
    }
}

#[test]
fn a_key_may_consist_of_any_bytes() {
    let server = Server::start();
    for mut conn in [server.connect(), server.connect_resp3()] {
        for key in odd_names() {
            round_trip(&mut conn, &key, b"owner");
        }
        round_trip(&mut conn, b"", b"owner");
        round_trip(&mut conn, &vec![0xa5; 70_000], b"owner");
    }
}

#[test]
fn owners_of_odd_bytes_are_different_owners() {
    let (_server, mut conn) = Server::start_connected();
    let owners = odd_names();
    let tokens: Vec<i64> = owners
        .iter()
        .map(|owner| int(&cmd!(conn, "LOCK.RLOCK", "key", owner, 60_000)))
        .collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "each is a new owner");
    let lock = lock_info(&mut conn, "key").unwrap();
    assert_eq!(lock.holds.len(), owners.len());
    for (owner, token) in owners.iter().zip(&tokens) {
        assert_eq!(hold_of(&mut conn, "key", owner).unwrap().token, *token);
    }
    for (owner, token) in owners.iter().zip(tokens) {
        let released = cmd!(conn, "LOCK.RELEASE", "key", owner, "TOKEN", token);
        assert_eq!(int(&released), 0);
    }
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
}

#[test]
fn names_of_odd_bytes_survive_dump_and_restore_and_a_reload() {
    let (_server, mut conn) = Server::start_connected();
    let names = odd_names();
    for name in &names {
        cmd!(conn, "LOCK.RLOCK", name, name, 60_000);
        cmd!(conn, "LOCK.RLOCK", "all", name, 60_000);
    }
    let before = lock_info(&mut conn, "all").unwrap().facts();
    let payload = bytes(&cmd!(conn, "DUMP", "all"));
    cmd!(conn, "DEL", "all");
    cmd!(conn, "RESTORE", "all", 0, payload);
    assert_eq!(lock_info(&mut conn, "all").unwrap().facts(), before);
    cmd!(conn, "DEBUG", "RELOAD");
    assert_eq!(lock_info(&mut conn, "all").unwrap().facts(), before);
    for name in &names {
        assert!(hold_of(&mut conn, name, name).is_some());
    }
}

#[test]
fn an_error_about_odd_bytes_is_one_line_of_printable_text() {
    let (_server, mut conn) = Server::start_connected();
    for odd in odd_names() {
        // Digits alone would be another error, with its own text.
        let more = [&odd[..], b"-"].concat();
        let negative = [b"-", &odd[..]].concat();
        for command in [
            command!("LOCK.ACQUIRE", "key", "a", 1_000, &odd),
            command!("LOCK.ACQUIRE", "key", "a", 1_000, &more),
            command!("LOCK.RENEW", "key", "a", &negative, "TOKEN"),
        ] {
            let error = conn.try_run(&command).unwrap_err();
            assert!(error.starts_with("ERR "), "{error:?}");
            let printable = error.bytes().all(|byte| (b' '..0x7f).contains(&byte));
            assert!(printable, "{error:?}");
            assert_eq!(text(&cmd!(conn, "PING")), "PONG", "the protocol is in step");
        }
    }
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
}

#[test]
fn an_error_about_a_huge_argument_stays_short() {
    let (_server, mut conn) = Server::start_connected();
    let huge = vec![b'7'; 4 << 20];
    for error in [
        try_cmd!(conn, "LOCK.ACQUIRE", "key", "a", &huge[..]).unwrap_err(),
        try_cmd!(conn, "LOCK.ACQUIRE", "key", "a", 1, &huge[..]).unwrap_err(),
        try_cmd!(conn, "LOCK.ACQUIRE", "key", &huge[..], 1).unwrap_err(),
        try_cmd!(conn, "LOCK.RELEASE", "key", "a", "TOKEN", &huge[..]).unwrap_err(),
    ] {
        assert!(error.starts_with("ERR "), "{error}");
        assert!(error.len() < 400, "{} bytes", error.len());
    }
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
}

#[test]
fn hundreds_of_thousands_of_arguments_are_refused_like_one_too_many() {
    let (_server, mut conn) = Server::start_connected();
    let mut words = vec!["LOCK.ACQUIRE", "key", "a", "1000"];
    words.extend(iter::repeat_n("x", 300_000));
    assert_error(conn.try_cmd(&words), "ERR ");
    words.splice(4.., ["HOLDS", "1"].repeat(100_000));
    assert_error(conn.try_cmd(&words), "ERR ");
    assert_eq!(int(&cmd!(conn, "EXISTS", "key")), 0);
}
