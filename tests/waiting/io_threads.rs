//! A server that reads requests and writes replies on several threads (`io-threads`). Most servers use them once many clients
//! are ready in the same turn of the event loop.

use mortise_harness::{Conn, Mail, Server, cmd, granted, int, queue, send, try_cmd};

const CLIENTS: usize = 24;
const ROUNDS: usize = 10;

/// A client that waits for `key` as a reader: blocked, or by mail with its connection blocked by LOCK.MAIL.
struct Reader {
    owner: String,
    by_mail: bool,
    conn: Conn,
}

impl Reader {
    fn new(server: &Server, number: usize) -> Reader {
        let (owner, by_mail) = (format!("reader-{number}"), number % 2 == 1);
        let mut conn = server.connect();
        if by_mail {
            let mailbox = format!("box-{number}");
            queue!(conn, &mailbox, "LOCK.RLOCK key {owner} 60000");
            send!(conn, "LOCK.MAIL {mailbox} WAIT 0");
        } else {
            send!(conn, "LOCK.RLOCK key {owner} 60000 WAIT 0");
        }
        server.await_blocked(&conn);
        Reader {
            owner,
            by_mail,
            conn,
        }
    }
}

/// A third of them closes its connections at the moment of the grant.
#[test]
fn readers_who_are_let_in_together_all_learn_it_from_the_threads() {
    let (server, mut writer) = Server::configured("io-threads 3; io-threads-do-reads yes");
    // Newer servers use them only under load, unless told otherwise. Others do not know this setting.
    _ = try_cmd!(writer, "CONFIG SET io-threads-always-active yes");
    // On a busy machine the readers take long to come, and a LOCK.MAIL waits for half of this.
    cmd!(writer, "CONFIG SET lock.mail-timeout 60000");
    for round in 0..ROUNDS {
        cmd!(writer, "LOCK.ACQUIRE key writer 60000");
        let numbers = round * CLIENTS..(round + 1) * CLIENTS;
        let mut readers: Vec<Reader> = numbers.map(|it| Reader::new(&server, it)).collect();
        send!(writer, "LOCK.RELEASE key writer");
        let gone: Vec<String> = readers
            .drain(..CLIENTS / 3)
            .map(|reader| reader.owner)
            .collect();
        assert_eq!(int(&writer.recv()), 0);
        for reader in &mut readers {
            if reader.by_mail {
                let letters = Mail::read(&reader.conn.recv());
                assert_eq!(letters.results(), [(&*reader.owner, "granted")]);
            } else {
                granted(&mut reader.conn);
            }
        }
        for reader in &mut readers {
            send!(reader.conn, "LOCK.RELEASE", "key", &reader.owner);
        }
        for reader in &mut readers {
            assert_eq!(int(&reader.conn.recv()), 0);
        }
        for owner in gone {
            _ = try_cmd!(writer, "LOCK.RELEASE key {owner}");
        }
        server.await_gauge("locks", 0);
    }
    let stats = server.info("stats");
    assert_ne!(stats["io_threaded_writes_processed"], "0");
}
