//! Another module calls the commands, for no user at all.

use std::path::Path;
use std::process::Command;

use mortise_harness::{Mail, Server, cmd, holders_of, int, mail, queued, request, try_cmd};

/// A server with a module of the test's own beside ours.
fn with_caller() -> Server {
    let server = Server::start();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mail/caller.c");
    let library = server.dir().join("caller.so");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{compiler}");
    let path = library.to_str().expect("a path in UTF-8");
    cmd!(server.connect(), "MODULE", "LOAD", path);
    server
}

#[test]
fn a_module_that_runs_commands_for_nobody_waits_by_mail() {
    let server = with_caller();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    let reply = a.run(&request!(
        "box",
        0,
        "CALLER.CALL",
        "LOCK.ACQUIRE",
        "key",
        "b",
        60_000
    ));
    let since = queued(&reply);
    cmd!(a, "LOCK.RELEASE", "key", "a");
    let told = Mail::read(&cmd!(a, "CALLER.CALL", "LOCK.MAIL", "box", "WAIT", 0));
    assert_eq!(
        (told.since, told.results()),
        (since, vec![("b", "granted")])
    );
    let script = "return redis.call('LOCK.MAIL', 'box')[1]";
    assert_eq!(int(&cmd!(a, "CALLER.CALL", "EVAL", script, 0)), since);
    // It is no user's box.
    let error = try_cmd!(a, "LOCK.MAIL", "box").unwrap_err();
    assert!(error.starts_with("NOPERM "), "{error}");
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
    assert!(mail!(a, "own").letters.is_empty());
}
