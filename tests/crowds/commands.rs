//! Commands at a key with very many holders cost the same while there is work to do at other keys.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::redis::Cmd;
use mortise_harness::{
    Builder, Conn, Server, bytes, cmd, command, eventually_within, info, int, mail, request, waiter,
};

use crate::{PATIENCE, alone, await_gauge, run_many, server, server_alone};

const HOLDERS: usize = 5_000;
/// More waiters than a settle decides.
const WAITERS: usize = 100;
/// Commands in one write.
const COMMANDS: usize = 200;

/// Many read `key`, and many wait there to write.
fn crowded(builder: Builder) -> (Server, Conn) {
    let server = builder.start();
    let mut conn = server.connect();
    let readers = (0..HOLDERS).map(|n| command!("LOCK.RLOCK key r{n} 600000"));
    run_many(&mut conn, readers, |token| assert!(int(&token) > 0));
    let writers = (0..WAITERS).map(|n| request!("box", 0, "LOCK.WLOCK key w{n} 600000"));
    run_many(&mut conn, writers, drop);
    assert_eq!(server.gauge("waiters"), WAITERS as i64);
    (server, conn)
}

/// The processor time that the server's main thread has used, in microseconds, by the reply to INFO.
fn cpu(reply: &mortise_harness::redis::Value) -> u64 {
    let lines = info(reply);
    let parts = ["used_cpu_user_main_thread", "used_cpu_sys_main_thread"];
    let seconds: f64 = parts
        .iter()
        .map(|part| lines[*part].parse::<f64>().unwrap())
        .sum();
    (seconds * 1e6) as u64
}

/// The processor time that these commands take, sent in one write.
#[track_caller]
fn cost(conn: &mut Conn, commands: &[Cmd]) -> u64 {
    let mut batch = vec![command!("INFO cpu")];
    batch.extend(commands.iter().cloned());
    batch.push(command!("INFO cpu"));
    let mut replies = conn
        .pipeline(&batch)
        .into_iter()
        .map(|reply| reply.expect("no error"));
    let before = cpu(&replies.next().expect("the first"));
    cpu(&replies.next_back().expect("the last")) - before
}

fn renewals() -> Vec<Cmd> {
    let renewal = |n| command!("LOCK.RENEW key r{n} 600000");
    (0..COMMANDS).map(renewal).collect()
}

#[test]
fn commands_at_a_crowded_key_cost_no_more_while_other_keys_have_changed() {
    let _turn = alone();
    let (server, mut conn) = crowded(server());
    for key in ["gone", "source"] {
        cmd!(conn, "LOCK.ACQUIRE {key} a 600000");
    }
    let dump = bytes(&cmd!(conn, "DUMP source"));
    for change in [
        command!("DEL gone"),
        command!("RESTORE", "new", 0, dump),
        command!("COPY source copy"),
    ] {
        cmd!(conn, "LOCK.ACQUIRE gone a 600000");
        let mut waiter = waiter!(server, "LOCK.ACQUIRE gone b 60000 WAIT 0");
        let plain = cost(&mut conn, &renewals());
        let mut commands = vec![change];
        commands.extend(renewals());
        let behind = cost(&mut conn, &commands);
        // Looking up four thousand holders in each of them takes more than half a second.
        let bound = 20 * plain.max(5_000);
        assert!(behind < bound, "{behind} µs, and {plain} µs without it");
        cmd!(conn, "LOCK.LEAVE gone a");
        int(&waiter.recv());
        cmd!(conn, "LOCK.LEAVE gone b");
    }
}

#[test]
fn commands_at_a_crowded_key_cost_no_more_while_all_keys_with_waiters_are_checked() {
    let _turn = alone();
    let (server, mut conn) = crowded(server());
    // Each waits at a key of its own, which is held.
    let mut other = conn_in(&server, 1);
    for n in 0..2_000 {
        cmd!(other, "LOCK.ACQUIRE key:{n} a 600000");
    }
    let waiting = (0..2_000).map(|n| request!("box", 0, "LOCK.ACQUIRE key:{n} b 600000"));
    run_many(&mut other, waiting, drop);
    let plain = cost(&mut conn, &renewals());
    let mut commands = vec![command!("SWAPDB 1 2")];
    commands.extend(renewals());
    let behind = cost(&mut conn, &commands);
    let bound = 20 * plain.max(5_000);
    assert!(behind < bound, "{behind} µs, and {plain} µs without it");
}

fn conn_in(server: &Server, db: i64) -> Conn {
    let mut conn = server.connect();
    cmd!(conn, "SELECT {db}");
    conn
}

#[test]
fn waits_that_end_together_at_a_full_pool_do_not_make_its_renewals_dear() {
    const CROWD: usize = 10_000;
    const WAIT: Duration = Duration::from_secs(5);
    const BATCH: usize = 150;
    let (_turn, server, mut conn) = server_alone();
    let permits = (0..HOLDERS).map(|n| command!("LOCK.RLOCK key r{n} 600000 LIMIT {HOLDERS}"));
    run_many(&mut conn, permits, |token| assert!(int(&token) > 0));
    let began = Instant::now();
    let wait = WAIT.as_millis() as u64;
    let waiting =
        (0..CROWD).map(|n| request!("box", wait, "LOCK.RLOCK key w{n} 600000 LIMIT {HOLDERS}"));
    run_many(&mut conn, waiting, drop);
    let renewals: Vec<Cmd> = renewals().into_iter().take(BATCH).collect();
    let plain = cost(&mut conn, &renewals);
    let waiting = server.gauge("waiters");
    assert_eq!(waiting, CROWD as i64, "a wait is over already");
    server.stop_signal();
    thread::sleep(WAIT + began.elapsed());
    server.cont_signal();
    let mut worst = 0;
    eventually_within(PATIENCE, "all waits are over", || {
        worst = worst.max(cost(&mut conn, &renewals));
        match server.gauge("waiters") {
            0 => Ok(()),
            waiters => Err(waiters),
        }
    });
    assert_eq!(server.gauge("total_timeouts"), CROWD as i64);
    assert_eq!(mail!(conn, "box").letters.len(), 100);
    let bound = 20 * plain.max(5_000);
    assert!(worst < bound, "{worst} µs, and {plain} µs before");
}

/// A command that ends very many requests: one of their owner, who has sent each over a connection of its own.
#[test]
fn the_longest_stretch_counts_commands() {
    const REQUESTS: i64 = 3_000;
    let _turn = alone();
    let (server, mut conn) = server().start_connected();
    cmd!(conn, "LOCK.ACQUIRE key a 600000");
    let _blocked: Vec<TcpStream> = (0..REQUESTS)
        .map(|_| {
            let mut client =
                TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
            let request = client.write_all(b"LOCK.ACQUIRE key o 600000 WAIT 0\r\n");
            request.expect("sent");
            client
        })
        .collect();
    await_gauge(&server, "blocked_clients", REQUESTS);
    let batch = [
        command!("INFO lock"),
        command!("INFO cpu"),
        command!("LOCK.LEAVE key o"),
        command!("INFO cpu"),
        command!("INFO lock"),
    ];
    // All of it in one turn of the event loop, before any timer.
    let replies = conn.pipeline(&batch);
    let replies: Vec<_> = replies.into_iter().map(Result::unwrap).collect();
    let longest = |reply| {
        info(reply)["lock_longest_stretch_us"]
            .parse::<u64>()
            .unwrap()
    };
    let (before, after) = (longest(&replies[0]), longest(&replies[4]));
    let spent = cpu(&replies[3]) - cpu(&replies[1]);
    assert!(spent > before, "{spent} µs are too few to be seen");
    assert!(after >= spent / 2, "{after} µs, a command took {spent} µs");
}
