//! `TOKEN t` of the acquiring commands adds to a hold and never makes one.

use mortise_harness::{Server, cmd, command, hold_of, int, is_nil, mail, queued, waiter};

#[test]
fn a_request_with_token_never_makes_a_hold() {
    let (server, mut a) = Server::start_connected();
    for command in ["LOCK.ACQUIRE", "LOCK.WLOCK", "LOCK.RLOCK"] {
        for way in ["", "WAIT 0", "WAIT 0 MAIL box HOLDS 1"] {
            assert!(is_nil(&cmd!(a, "{command} key a 9000 {way} TOKEN 1")));
        }
    }
    assert_eq!(int(&cmd!(a, "EXISTS key")), 0);
    cmd!(a, "LOCK.ACQUIRE key b 60000");
    assert!(is_nil(&cmd!(a, "LOCK.ACQUIRE key a 9000 WAIT 0 TOKEN 1")));
    assert_eq!(server.gauge("waiters"), 0);
}

#[test]
fn a_request_with_token_adds_to_a_hold_by_that_token_or_a_higher_one() {
    let (_server, mut a) = Server::start_connected();
    let token = int(&cmd!(a, "LOCK.RLOCK key a 9000"));
    let higher = token + 1;
    assert!(is_nil(&cmd!(a, "LOCK.RLOCK key a 9000 TOKEN {higher}")));
    assert_eq!(int(&cmd!(a, "LOCK.RLOCK key a 9000 TOKEN {token}")), token);
    let upgrade = command!("LOCK.WLOCK key a 9000 HOLDS 1 TOKEN {token}");
    let upgraded = int(&a.run(&upgrade));
    assert!(upgraded > token);
    // The same request again is granted again.
    assert_eq!(int(&a.run(&upgrade)), upgraded);
    assert_eq!(hold_of(&mut a, "key", "a").unwrap().counts(), (1, 2));
}

#[test]
fn a_waiting_upgrade_with_token_is_granted_or_gets_null_when_its_hold_has_ended() {
    for (end, is_granted) in [("b", true), ("a", false)] {
        let (server, mut a) = Server::start_connected();
        let token = int(&cmd!(a, "LOCK.RLOCK key a 60000"));
        cmd!(a, "LOCK.RLOCK key b 60000");
        let mut blocked = waiter!(server, "LOCK.WLOCK key a 60000 WAIT 0 TOKEN {token}");
        cmd!(a, "LOCK.RELEASE key {end}");
        let reply = blocked.recv();
        assert_eq!(!is_nil(&reply), is_granted);
        assert!(!is_granted || int(&reply) > token);
    }
}

#[test]
fn in_the_grace_a_request_with_token_waits_only_if_its_hold_exists() {
    let (mut server, mut a) = Server::configured("appendonly yes");
    let token = int(&cmd!(a, "LOCK.RLOCK key a 600000"));
    server.set_module_arg("grace", "1000");
    server.restart(mortise_harness::Shutdown::Save);
    let mut a = server.connect();
    assert!(is_nil(&cmd!(a, "LOCK.RLOCK key b 9000 WAIT 0 TOKEN 1")));
    queued(&cmd!(
        a,
        "LOCK.WLOCK key a 9000 WAIT 0 MAIL box HOLDS 1 TOKEN {token}"
    ));
    server.await_gauge("letters", 1);
    assert_eq!(mail!(a, "box").results(), [("a", "granted")]);
}
