//! Another module calls the commands without a user.

use mortise_harness::{Mail, Server, cmd, holders_of, int, mail, queued, refused, request};

#[test]
fn a_module_without_a_user_can_wait_by_mail() {
    let server = Server::start();
    server.load_actor();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE key a 60000");
    let reply = a.run(&request!("box", 0, "ACTOR.CALL LOCK.ACQUIRE key b 60000"));
    let since = queued(&reply);
    cmd!(a, "LOCK.RELEASE key a");
    let told = Mail::read(&cmd!(a, "ACTOR.CALL LOCK.MAIL box WAIT 0"));
    assert_eq!(
        (told.since, told.results()),
        (since, vec![("b", "granted")])
    );
    let script = "return redis.call('LOCK.MAIL', 'box')[1]";
    assert_eq!(int(&cmd!(a, "ACTOR.CALL", "EVAL", script, 0)), since);
    // It is no user's box.
    refused!(a, "NOPERM ", "LOCK.MAIL box");
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
    assert!(mail!(a, "own").letters.is_empty());
}
