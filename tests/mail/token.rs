//! `TOKEN t` of the acquiring commands adds to a hold and never makes one.

use mortise_harness::{
    Server, cmd, eventually, granted, hold_of, holders_of, int, is_nil, mail, queued, try_cmd,
    waiter,
};

#[test]
fn a_request_with_token_never_makes_a_hold() {
    let server = Server::start();
    let mut a = server.connect();
    for command in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        assert!(is_nil(&cmd!(a, command, "key", "a", 9_000, "TOKEN", 1)));
        assert!(is_nil(&cmd!(a, "{command} key a 9000 WAIT 0 TOKEN 1")));
        assert!(is_nil(&cmd!(
            a,
            "{command} key a 9000 WAIT 0 MAIL box HOLDS 1 TOKEN 1"
        )));
    }
    assert_eq!(int(&cmd!(a, "EXISTS", "key")), 0);
    cmd!(a, "LOCK.ACQUIRE", "key", "b", 60_000);
    assert!(is_nil(&cmd!(a, "LOCK.ACQUIRE key a 9000 WAIT 0 TOKEN 1")));
    assert_eq!(server.gauge("waiters"), 0);
}

#[test]
fn a_request_with_token_adds_to_a_hold_by_that_token_or_a_higher_one() {
    let server = Server::start();
    let mut a = server.connect();
    let token = int(&cmd!(a, "LOCK.RLOCK", "key", "a", 9_000));
    assert!(is_nil(&cmd!(
        a,
        "LOCK.RLOCK",
        "key",
        "a",
        9_000,
        "TOKEN",
        token + 1
    )));
    assert_eq!(
        int(&cmd!(a, "LOCK.RLOCK", "key", "a", 9_000, "TOKEN", token)),
        token
    );
    let upgraded = int(&cmd!(a, "LOCK.WLOCK key a 9000 HOLDS 1 TOKEN {token}"));
    assert!(upgraded > token);
    // The same request again is granted again.
    assert_eq!(
        int(&cmd!(a, "LOCK.WLOCK key a 9000 HOLDS 1 TOKEN {token}")),
        upgraded
    );
    assert_eq!(hold_of(&mut a, "key", "a").unwrap().counts(), (1, 2));
}

#[test]
fn an_upgrade_with_token_waits_and_is_granted() {
    let server = Server::start();
    let mut a = server.connect();
    let token = int(&cmd!(a, "LOCK.RLOCK", "key", "a", 60_000));
    cmd!(a, "LOCK.RLOCK", "key", "b", 60_000);
    let mut blocked = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0 TOKEN {token}");
    cmd!(a, "LOCK.RELEASE", "key", "b");
    assert!(granted(&mut blocked) > token);
}

#[test]
fn a_waiting_request_with_token_gets_null_when_its_hold_has_ended() {
    let server = Server::start();
    let mut a = server.connect();
    let token = int(&cmd!(a, "LOCK.RLOCK", "key", "a", 60_000));
    cmd!(a, "LOCK.RLOCK", "key", "b", 60_000);
    let mut blocked = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0 TOKEN {token}");
    cmd!(a, "LOCK.RELEASE", "key", "a");
    assert!(is_nil(&blocked.recv()));
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
}

#[test]
fn a_request_with_the_token_of_an_earlier_hold_adds_to_a_later_one() {
    let server = Server::start();
    let mut a = server.connect();
    let token = int(&cmd!(a, "LOCK.RLOCK", "key", "a", 60_000));
    cmd!(a, "LOCK.RELEASE", "key", "a");
    let later = int(&cmd!(a, "LOCK.RLOCK", "key", "a", 60_000));
    // A higher token is accepted: the contract requires the token or a higher one.
    assert_eq!(
        int(&cmd!(a, "LOCK.RLOCK key a 9000 HOLDS 1 TOKEN {token}")),
        later
    );
}

#[test]
fn in_the_grace_a_request_with_token_waits_only_if_its_hold_exists() {
    let mut server = Server::builder().config("appendonly", "yes").start();
    let mut a = server.connect();
    let token = int(&cmd!(a, "LOCK.RLOCK", "key", "a", 600_000));
    server.set_module_arg("grace", "1000");
    server.restart(mortise_harness::Shutdown::Save);
    let mut a = server.connect();
    assert!(is_nil(&cmd!(a, "LOCK.RLOCK key b 9000 WAIT 0 TOKEN 1")));
    queued(&cmd!(
        a,
        "LOCK.WLOCK key a 9000 WAIT 0 MAIL box HOLDS 1 TOKEN {token}"
    ));
    eventually("the grace ends", || server.gauge("letters") == 1);
    assert_eq!(mail!(a, "box").results(), [("a", "granted")]);
}

#[test]
fn token_has_the_bounds_of_a_token() {
    let server = Server::start();
    let mut a = server.connect();
    for bad in ["0", "x", "9007199254740992"] {
        let error = try_cmd!(a, "LOCK.ACQUIRE", "key", "a", 9_000, "TOKEN", bad).unwrap_err();
        assert!(error.starts_with("ERR TOKEN must be"), "{error}");
    }
}
