//! The server is about to close a waiter's client: the grant is never received, though the server asks for its reply.

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, hold_of, holders_of, int, send, waiter,
};

/// `a` holds `key`, and `b` and then `c` wait for it; `b` as the user `guest`, on a connection that tracks keys, with an
/// output limit of 64 KB.
struct Scene {
    server: Server,
    a: Conn,
    b: Conn,
    c: Conn,
}

impl Scene {
    fn new() -> Scene {
        let limit = "normal 65536 0 0";
        let server = Server::builder()
            .config("client-output-buffer-limit", limit)
            .start();
        let mut a = server.connect();
        cmd!(
            a, "ACL", "SETUSER", "guest", "on", "nopass", "~*", "&*", "+@all"
        );
        cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
        let mut b = server.connect_resp3();
        cmd!(b, "AUTH", "guest", "");
        cmd!(b, "CLIENT", "TRACKING", "on", "BCAST");
        send!(b, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
        server.await_blocked(&b);
        let c = waiter!(server, "LOCK.ACQUIRE", "key", "c", 60_000, "WAIT", 0);
        Scene { server, a, b, c }
    }

    fn release(&self) -> Cmd {
        command!("LOCK.RELEASE", "key", "a")
    }

    /// Checks that `b` was closed, and that nothing is left of its grant.
    #[track_caller]
    fn goes_to_c(mut self) {
        granted(&mut self.c);
        assert_eq!(holders_of(&mut self.a, "key"), ["c"]);
        let gone = eventually("b is closed", || self.b.try_recv().err());
        assert!(gone.starts_with("connection closed"), "{gone}");
        cmd!(self.a, "LOCK.RELEASE", "key", "c");
        for gauge in ["locks", "waiters", "blocked_clients", "marked"] {
            assert_eq!(self.server.gauge(gauge), 0, "{gauge}");
        }
    }
}

fn delete_user() -> Cmd {
    command!("ACL", "DELUSER", "guest")
}

/// Short, so that the server reads it together with the rest of the write.
fn change_many_keys() -> Cmd {
    let script = "for n = 1, 4000 do redis.call('SET', string.rep('x', 50) .. n, n) end";
    command!("EVAL", script, 0)
}

#[test]
fn a_waiter_whose_user_is_deleted_behind_its_grant_gives_the_lock_to_the_next() {
    let mut scene = Scene::new();
    scene.a.pipeline(&[scene.release(), delete_user()]);
    scene.goes_to_c();
}

#[test]
fn a_waiter_whose_user_is_deleted_ahead_of_its_grant_gives_the_lock_to_the_next() {
    let mut scene = Scene::new();
    scene.a.pipeline(&[delete_user(), scene.release()]);
    scene.goes_to_c();
}

#[test]
fn a_transaction_that_releases_and_deletes_the_user_gives_the_lock_to_the_next() {
    let mut scene = Scene::new();
    let steps = [
        command!("MULTI"),
        scene.release(),
        delete_user(),
        command!("EXEC"),
    ];
    scene.a.pipeline(&steps);
    scene.goes_to_c();
}

#[test]
fn a_waiter_that_passes_its_output_limit_behind_its_grant_gives_the_lock_to_the_next() {
    let mut scene = Scene::new();
    scene.a.pipeline(&[scene.release(), change_many_keys()]);
    scene.goes_to_c();
}

#[test]
fn a_waiter_that_passes_its_output_limit_ahead_of_its_grant_gives_the_lock_to_the_next() {
    let mut scene = Scene::new();
    scene.a.pipeline(&[change_many_keys(), scene.release()]);
    scene.goes_to_c();
}

#[test]
fn an_owner_that_got_a_reply_on_another_connection_keeps_the_lock() {
    let mut scene = Scene::new();
    let again = command!("LOCK.ACQUIRE", "key", "b", 60_000);
    let replies = scene.a.pipeline(&[scene.release(), again, delete_user()]);
    let token = int(replies[1].as_ref().unwrap());
    eventually("b is gone", || scene.b.try_recv().is_err());
    let hold = hold_of(&mut scene.a, "key", "b").expect("b holds");
    assert_eq!((hold.counts(), hold.token), ((2, 0), token));
    cmd!(scene.a, "LOCK.RELEASE", "key", "b", "ALL");
    granted(&mut scene.c);
}

/// The client reads a reply and then closes its connection.
#[test]
fn a_waiter_that_quits_in_the_same_write_keeps_the_lock() {
    let server = Server::start();
    let mut a = server.connect();
    for _ in 0..20 {
        cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
        let mut b = server.connect();
        b.send_raw(b"LOCK.ACQUIRE key b 60000 WAIT 0\r\nQUIT\r\n");
        eventually("b waits", || server.gauge("waiters") == 1);
        cmd!(a, "LOCK.RELEASE", "key", "a");
        let token = granted(&mut b);
        eventually("b is gone", || b.try_recv().is_err());
        assert_eq!(hold_of(&mut a, "key", "b").expect("b holds").token, token);
        cmd!(a, "LOCK.RELEASE", "key", "b");
    }
}

/// So does a client that closes as soon as it has read its reply, even in the same turn of the event loop.
#[test]
fn a_waiter_that_closes_as_soon_as_it_has_its_grant_keeps_the_lock() {
    let server = Server::start();
    let mut a = server.connect();
    for _ in 0..200 {
        cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
        let mut b = waiter!(server, "LOCK.ACQUIRE", "key", "b", 60_000, "WAIT", 0);
        cmd!(a, "LOCK.RELEASE", "key", "a");
        let token = granted(&mut b);
        drop(b);
        assert_eq!(hold_of(&mut a, "key", "b").expect("b holds").token, token);
        cmd!(a, "LOCK.RELEASE", "key", "b");
    }
}
