//! Waiting by mail: the memory of a waiting request, the time of a hand-off, ten thousand tasks of one process, and a million requests
//! on one server, queued, granted in order, and released.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Conn, Mail, Server, cmd, command, eventually, eventually_within, int, mail, send,
};

use crate::report::{Report, count};
use crate::samples::Samples;
use crate::scale::Scale;

const KEY: &str = "mailed";
const LEASE: u64 = 600_000;
/// Requests in one write.
const BATCH: usize = 500;
/// The longest that a measurement may take.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    memory(scale, report);
    latency(scale, report);
    tasks(scale, report);
    million(scale, report);
}

fn server() -> Server {
    Server::builder()
        .module_arg("max-queued", "10000000")
        .module_arg("mail-timeout", "60000")
        .start()
}

fn request(key: &str, owner: usize, mailbox: &str) -> Cmd {
    // As long as a client's owner names: a UUID and a counter.
    let owner = format!("0f8fad5b-d9cb-469f-a165-70867728950e:{owner}");
    command!("LOCK.ACQUIRE {key} {owner} {LEASE} WAIT 0 MAIL {mailbox} HOLDS 1")
}

/// Queues `count` requests by mail, in ten boxes.
fn queue(conn: &mut Conn, count: usize, key: impl Fn(usize) -> String) {
    for first in (0..count).step_by(BATCH) {
        let batch = first..count.min(first + BATCH);
        let batch: Vec<Cmd> = batch
            .map(|n| request(&key(n), n, &format!("box{}", n % 10)))
            .collect();
        for reply in conn.pipeline(&batch) {
            reply.expect("the request is queued");
        }
    }
}

fn used(server: &Server) -> f64 {
    let info = server.info("memory");
    info["used_memory"].parse().expect("a number of bytes")
}

fn memory(scale: &Scale, report: &mut Report) {
    let (requests, few) = (
        scale.waiting_by_mail / 10,
        count(scale.waiting_by_mail / 10),
    );
    let one = server();
    let mut conn = one.connect();
    cmd!(conn, "LOCK.ACQUIRE", KEY, "holder", LEASE);
    let before = used(&one);
    queue(&mut conn, requests, |_| KEY.to_owned());
    let line: Samples = ((used(&one) - before) / requests as f64).into();

    let each = server();
    let mut conn = each.connect();
    let key = |n: usize| format!("{KEY}:{n}");
    for first in (0..requests).step_by(BATCH) {
        let batch = first..requests.min(first + BATCH);
        let batch: Vec<Cmd> = batch
            .map(|n| command!("LOCK.ACQUIRE", key(n), "holder", LEASE))
            .collect();
        conn.pipeline(&batch);
    }
    let before = used(&each);
    queue(&mut conn, requests, key);
    let apart: Samples = ((used(&each) - before) / requests as f64).into();
    for (what, taken, limit) in [
        ("in one queue", line, 400.0),
        ("at keys of their own", apart, 600.0),
    ] {
        let what = format!("memory of a request by mail, {few} {what}, against {limit} bytes");
        report.held(what, "bytes", &taken, &Samples::from(limit), 1.0);
    }
}

/// One client waits by mail and one releases: the time from sending the release to receiving the letter. Alternates with a PING.
fn latency(scale: &Scale, report: &mut Report) {
    let server = server();
    let (mut commands, mut ear) = (server.connect(), server.connect());
    let (mut handoff, mut ping) = (Samples::default(), Samples::default());
    let mut since = mail!(ear, "box").since;
    let mut after = 0;
    cmd!(commands, "LOCK.ACQUIRE", KEY, 0, LEASE);
    for turn in 0..scale.handoffs {
        cmd!(
            commands,
            "LOCK.ACQUIRE",
            KEY,
            turn + 1,
            LEASE,
            "WAIT",
            0,
            "MAIL",
            "box",
            "HOLDS",
            1
        );
        send!(ear, "LOCK.MAIL", "box", "AFTER", since, after, "WAIT", 0);
        server.await_blocked(&ear);
        let began = Instant::now();
        cmd!(commands, "PING");
        ping.push(micros(began));
        let began = Instant::now();
        send!(commands, "LOCK.RELEASE", KEY, turn);
        let told = Mail::read(&ear.recv());
        handoff.push(micros(began));
        commands.recv();
        (since, after) = (told.since, told.only().number);
    }
    report.held(
        "hand-off by mail p50, against PING p50",
        "µs",
        &Samples::from(handoff.median()),
        &Samples::from(ping.median()),
        6.0,
    );
}

fn micros(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e6
}

/// Ten thousand tasks of one process that contend for one lock over two connections, against 32 blocked clients.
fn tasks(scale: &Scale, report: &mut Report) {
    let (mut by_mail, mut blocked) = (Samples::default(), Samples::default());
    for _ in 0..scale.contention_rounds {
        by_mail.push(1e6 / tasks_by_mail(scale));
        blocked.push(1e6 / blocked_clients(scale));
    }
    let what = format!(
        "an acquisition, {} tasks by mail over two connections against 32 blocked clients",
        count(scale.tasks_by_mail)
    );
    report.held(what, "µs", &by_mail, &blocked, 1.0 / 0.9);
}

fn tasks_by_mail(scale: &Scale) -> f64 {
    let server = server();
    let mut conn = server.connect();
    let since = mail!(conn, "box0").since;
    let mut next = scale.tasks_by_mail;
    cmd!(conn, "LOCK.ACQUIRE", KEY, "holder", LEASE);
    for first in (0..next).step_by(BATCH) {
        let batch = first..next.min(first + BATCH);
        let batch: Vec<Cmd> = batch.map(|n| request(KEY, n, "box0")).collect();
        conn.pipeline(&batch);
    }
    let (mut commands, mut ear) = (Wire::to(&server), Wire::to(&server));
    cmd!(conn, "LOCK.RELEASE", KEY, "holder");
    let ask = |after: &str| {
        command!("LOCK.MAIL", "box0", "AFTER", since, after, "WAIT", 0).get_packed_command()
    };
    ear.send(&ask("0"));
    let (mut done, mut sent) = (0, Vec::new());
    let began = Instant::now();
    while began.elapsed() < scale.contention {
        let told = ear.reply();
        // The task releases and queues again; then the benchmark requests the next letter.
        sent.clear();
        let release = command!("LOCK.RELEASE", KEY, field(&told, "owner"));
        sent.extend(release.get_packed_command());
        sent.extend(request(KEY, next, "box0").get_packed_command());
        commands.send(&sent);
        ear.send(&ask(field(&told, "number")));
        if done > 0 {
            commands.reply();
            commands.reply();
        }
        (next, done) = (next + 1, done + 1);
    }
    f64::from(done) / began.elapsed().as_secs_f64()
}

fn blocked_clients(scale: &Scale) -> f64 {
    let server = server();
    let again = |owner: usize| {
        let acquire = command!("LOCK.ACQUIRE", KEY, owner, LEASE, "WAIT", 0);
        let release = command!("LOCK.RELEASE", KEY, owner);
        [release.get_packed_command(), acquire.get_packed_command()]
    };
    let mut clients: VecDeque<(Wire, Vec<u8>)> = (0..32)
        .map(|owner| {
            let mut wire = Wire::to(&server);
            wire.send(&again(owner)[1]);
            // They queue in this order, in which the loop below reads their replies.
            eventually("the request has arrived", || {
                let seen = (server.gauge("holders"), server.gauge("waiters"));
                if seen == (1, owner as i64) {
                    Ok(())
                } else {
                    Err(format!("{seen:?}"))
                }
            });
            (wire, again(owner).concat())
        })
        .collect();
    let mut done = 0;
    let began = Instant::now();
    while began.elapsed() < scale.contention {
        let Some((mut wire, again)) = clients.pop_front() else {
            break;
        };
        // The grant. Except for the first time, the reply to the last release follows it.
        wire.reply();
        wire.send(&again);
        wire.reply();
        clients.push_back((wire, again));
        done += 1;
    }
    f64::from(done) / began.elapsed().as_secs_f64()
}

/// A bare connection: bytes go out, and whole replies come in.
struct Wire {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Wire {
    fn to(server: &Server) -> Wire {
        let stream = TcpStream::connect(server.addr()).expect("the server listens");
        stream.set_nodelay(true).expect("an option of TCP");
        let unread = Vec::new();
        Wire { stream, unread }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// The next reply, as it was on the wire.
    fn reply(&mut self) -> String {
        let mut chunk = [0; 4_096];
        loop {
            if let Some(end) = end_of_reply(&self.unread, 0) {
                let reply = self.unread.drain(..end).collect();
                return String::from_utf8(reply).expect("names are text here");
            }
            let read = self.stream.read(&mut chunk).expect("the server answers");
            assert!(read > 0, "the connection was closed");
            self.unread.extend_from_slice(&chunk[..read]);
        }
    }
}

/// The end of the reply that begins at `at`, if it is complete.
fn end_of_reply(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
    let end = at + line + 2;
    let text = std::str::from_utf8(&bytes[at + 1..end - 2]).ok()?;
    match bytes[at] {
        b'$' if text != "-1" => {
            let end = end + text.parse::<usize>().ok()? + 2;
            (end <= bytes.len()).then_some(end)
        }
        b'*' if text != "-1" => {
            (0..text.parse::<usize>().ok()?).try_fold(end, |at, _| end_of_reply(bytes, at))
        }
        b'-' => panic!("{text}"),
        _ => Some(end),
    }
}

/// The value of the field `name` in a letter.
fn field<'a>(reply: &'a str, name: &str) -> &'a str {
    let mut lines = reply.split("\r\n").skip_while(|line| *line != name).skip(1);
    let first = lines.next().expect("a letter");
    match first.strip_prefix(':') {
        Some(number) => number,
        None => lines.next().expect("a text"),
    }
}

/// Queues a million requests at a thousand locks, releases all locks at once, collects the letters, and releases every grant.
fn million(scale: &Scale, report: &mut Report) {
    const LOCKS: usize = 1_000;
    let requests = scale.waiting_by_mail;
    let server = server();
    let mut conn = server.connect();
    let key = |n: usize| format!("{KEY}:{}", n % LOCKS);
    for n in 0..LOCKS {
        cmd!(conn, "LOCK.ACQUIRE", key(n), "holder", LEASE);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let pings = ping_until(&server, &stop);
    let began = Instant::now();
    queue(&mut conn, requests, key);
    let taken = began.elapsed();
    for n in 0..LOCKS {
        cmd!(conn, "LOCK.RELEASE", key(n), "holder");
    }
    let began = Instant::now();
    let mut last = vec![0; LOCKS];
    let mut told = 0;
    let mut afters = [(0, 0); 10];
    while told < requests {
        for (number, (since, after)) in afters.iter_mut().enumerate() {
            let mailbox = format!("box{number}");
            let reply = mail!(conn, &mailbox, "AFTER", *since, *after, "COUNT", 1_000);
            *since = reply.since;
            let mut releases = Vec::with_capacity(reply.letters.len());
            for letter in reply.letters {
                let place: usize = letter.key[KEY.len() + 1..].parse().expect("a number");
                assert!(
                    letter.token() > last[place],
                    "granted out of order: {letter:?}"
                );
                last[place] = letter.token();
                *after = letter.number;
                releases.push(command!("LOCK.RELEASE", &letter.key, &letter.owner));
            }
            told += releases.len();
            conn.pipeline(&releases);
        }
    }
    let granted = began.elapsed();
    eventually_within(PATIENCE, "nothing is left", || {
        int(&cmd!(conn, "DBSIZE")) == 0
    });
    stop.store(true, Ordering::SeqCst);
    let pings = pings.join().expect("the pings went through");
    let many = count(requests);
    let seconds = |time: Duration| Samples::from(time.as_secs_f64());
    report.raw(
        &format!("{many} requests by mail"),
        &[
            ("taken in", "s", &seconds(taken)),
            ("granted, delivered and released in", "s", &seconds(granted)),
        ],
    );
    let worst = Samples::from(pings.max());
    report.raw(
        &format!("worst PING while {many} requests wait by mail and are served"),
        &[("", "ms", &worst)],
    );
}

fn ping_until(server: &Server, stop: &Arc<AtomicBool>) -> thread::JoinHandle<Samples> {
    let (mut conn, stop) = (server.connect(), Arc::clone(stop));
    thread::spawn(move || {
        let mut pings = Samples::default();
        while !stop.load(Ordering::SeqCst) {
            let began = Instant::now();
            cmd!(conn, "PING");
            pings.push(began.elapsed().as_secs_f64() * 1e3);
            thread::sleep(Duration::from_millis(1));
        }
        pings
    })
}
