//! A LOCK.MAIL whose client the server is about to close: the letters in its reply are not delivered.

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Conn, Server, cmd, command, eventually, granted, holders_of, int, queue, send, waiter,
};

/// `a` holds `key`, and `b` and then `c` wait for it by mail. The user `guest` collects the letters, on a connection that
/// tracks keys, with an output limit of 64 KB. The box closes within 600 ms.
struct Scene {
    server: Server,
    a: Conn,
    reader: Conn,
    c: Conn,
}

impl Scene {
    fn new() -> Scene {
        let server = Server::builder()
            .module_arg("mail-timeout", "600")
            .config("client-output-buffer-limit", "normal 65536 0 0")
            .start();
        let mut a = server.connect();
        cmd!(
            a, "ACL", "SETUSER", "guest", "on", "nopass", "~*", "&*", "+@all"
        );
        cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
        let mut reader = server.connect_resp3();
        cmd!(reader, "AUTH", "guest", "");
        cmd!(reader, "CLIENT", "TRACKING", "on", "BCAST");
        queue!(reader, "box", "LOCK.ACQUIRE", "key", "b", 60_000);
        let c = waiter!(server, "LOCK.ACQUIRE", "key", "c", 60_000, "WAIT", 0);
        send!(reader, "LOCK.MAIL", "box", "WAIT", 0);
        server.await_blocked(&reader);
        Scene {
            server,
            a,
            reader,
            c,
        }
    }

    /// Checks that the reader was closed, and that its box closes and undoes the undelivered grant.
    #[track_caller]
    fn goes_to_c(mut self) {
        granted(&mut self.c);
        assert_eq!(holders_of(&mut self.a, "key"), ["c"]);
        let gone = eventually("the reader is closed", || self.reader.try_recv().err());
        assert!(gone.starts_with("connection closed"), "{gone}");
        for gauge in ["boxes", "letters"] {
            assert_eq!(self.server.gauge(gauge), 0, "{gauge}");
        }
    }
}

fn release() -> Cmd {
    command!("LOCK.RELEASE", "key", "a")
}

fn flood() -> Cmd {
    let script = "for n = 1, 4000 do redis.call('SET', string.rep('x', 50) .. n, n) end";
    command!("EVAL", script, 0)
}

fn delete_user() -> Cmd {
    command!("ACL", "DELUSER", "guest")
}

#[test]
fn deleting_the_user_of_a_reader_after_a_letter_leaves_it_undelivered() {
    let mut scene = Scene::new();
    scene.a.pipeline(&[release(), delete_user()]);
    scene.goes_to_c();
}

#[test]
fn deleting_the_user_of_a_reader_before_a_letter_leaves_it_undelivered() {
    let mut scene = Scene::new();
    scene.a.pipeline(&[delete_user(), release()]);
    scene.goes_to_c();
}

#[test]
fn a_letter_to_a_reader_that_passes_its_output_limit_is_not_delivered() {
    let mut scene = Scene::new();
    scene.a.pipeline(&[release(), flood()]);
    scene.goes_to_c();
}

/// The client reads the reply and then closes its connection: the letter was delivered, and the grant stays for its lease.
#[test]
fn a_letter_to_a_reader_that_quits_in_the_same_write_is_delivered() {
    let server = Server::builder().module_arg("mail-timeout", "300").start();
    let mut a = server.connect();
    cmd!(a, "LOCK.ACQUIRE", "key", "a", 60_000);
    queue!(a, "box", "LOCK.ACQUIRE", "key", "b", 60_000);
    let mut reader = server.connect();
    reader.send_raw(b"LOCK.MAIL box WAIT 0\r\nQUIT\r\n");
    server.await_blocked(&reader);
    cmd!(a, "LOCK.RELEASE", "key", "a");
    assert!(reader.try_recv().is_ok(), "the letter");
    eventually("the box goes", || server.gauge("boxes") == 0);
    assert_eq!(holders_of(&mut a, "key"), ["b"]);
}

#[test]
fn a_letter_that_another_reader_got_in_the_same_turn_is_delivered() {
    let mut scene = Scene::new();
    let mut other = scene.server.connect();
    cmd!(other, "AUTH", "guest", "");
    other.pipeline(&[release(), command!("LOCK.MAIL", "box"), flood()]);
    eventually("the reader is closed", || scene.reader.try_recv().err());
    eventually("the box goes", || scene.server.gauge("boxes") == 0);
    assert_eq!(holders_of(&mut scene.a, "key"), ["b"]);
}

#[test]
fn letters_of_two_boxes_to_a_reader_that_passes_its_output_limit_are_not_delivered() {
    let server = Server::builder()
        .module_arg("mail-timeout", "600")
        .config("client-output-buffer-limit", "normal 65536 0 0")
        .start();
    let (mut a, mut reader) = (server.connect(), server.connect());
    for (key, mailbox) in [("key 1", "box 1"), ("key 2", "box 2")] {
        cmd!(a, "LOCK.ACQUIRE", key, "a", 60_000);
        queue!(reader, mailbox, "LOCK.ACQUIRE", key, "b", 60_000);
        cmd!(a, "LOCK.RELEASE", key, "a");
        assert_eq!(holders_of(&mut a, key), ["b"]);
    }
    let flood = "return string.rep('x', 100000)";
    let in_one_write = [
        command!("LOCK.MAIL", "box 1"),
        command!("LOCK.MAIL", "box 2"),
        command!("EVAL", flood, 0),
    ];
    let bytes: Vec<u8> = in_one_write
        .iter()
        .flat_map(Cmd::get_packed_command)
        .collect();
    reader.send_raw(&bytes);
    eventually("the reader is closed", || reader.try_recv().err());
    eventually("the boxes go", || server.gauge("boxes") == 0);
    assert_eq!(int(&cmd!(a, "EXISTS", "key 1", "key 2")), 0);
}
