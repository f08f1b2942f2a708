//! A write under a lock: SET inside LOCK.GUARD against the same SET inside a script that checks a
//! token first, and against SET alone.

use std::thread;

use mortise_harness::{Server, cmd, int, text};

use crate::meter::Meter;
use crate::report::{Report, count};
use crate::samples::Samples;
use crate::scale::{SETTLING_IN, Scale};
use crate::schemes::{LONG_LEASE, key, owner};
use crate::wire::{Batch, Clients, batches};

/// The leanest possible check of a token and write.
const CHECK_AND_SET: &str = "
if redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('set', KEYS[2], ARGV[2])
end
return redis.error_reply('STALE')";

/// A way to write, and what it costs.
struct Stand {
    name: &'static str,
    /// As INFO commandstats names it.
    command: &'static str,
    db: usize,
    batches: Vec<Batch>,
    usec: Samples,
    cpu: Samples,
}

pub(crate) fn run(scale: &Scale, report: &mut Report) {
    let server = Server::start();
    let mut clients = Clients::connect(&server);
    let mut stands = stands(scale, &server);
    thread::sleep(SETTLING_IN);

    let mut meter = Meter::on(&server);
    // The first round warms up.
    for round in 0..=scale.rounds {
        for stand in &mut stands {
            clients.select(stand.db);
            let cost = meter.cost(&[stand.command], || clients.run(&stand.batches));
            if round > 0 {
                stand.usec.push(cost.usec[0] / scale.pairs as f64);
                stand.cpu.push(cost.cpu / scale.pairs as f64);
            }
        }
    }
    let [guard, script, bare] = &stands;
    let locks = count(scale.few);
    let what = format!("{} against {}, {locks} locks", guard.name, script.name);
    report.held(what, "µs", &guard.usec, &script.usec, 0.5);
    let what = format!("{} against {}, {locks} locks", guard.name, bare.name);
    report.shown(what, "µs", &guard.usec, &bare.usec);
    for stand in &stands {
        let figures = [
            ("CPU a command", "µs", &stand.usec),
            ("whole main thread a command", "µs", &stand.cpu),
        ];
        report.raw(stand.name, &figures);
    }
}

/// Each in its own database, with another owner for each lock.
fn stands(scale: &Scale, server: &Server) -> [Stand; 3] {
    let mut conn = server.connect();
    let tokens: Vec<String> = (0..scale.few)
        .map(|n| {
            let token = cmd!(conn, "LOCK.ACQUIRE", key(n), owner(n), LONG_LEASE);
            int(&token).to_string()
        })
        .collect();
    cmd!(conn, "SELECT", 1);
    for (n, token) in tokens.iter().enumerate() {
        cmd!(conn, "SET", key(n), token, "PX", LONG_LEASE);
    }
    let script = text(&cmd!(conn, "SCRIPT", "LOAD", CHECK_AND_SET.trim()));
    let writes = |write: &dyn Fn(&str, &str, &str, &str) -> Vec<String>| {
        batches(0, scale.pairs, "+OK", |batch, n| {
            let n = n % scale.few;
            let (lock, data) = (key(n), format!("data:{}", key(n)));
            let words = write(&lock, &owner(n), &tokens[n], &data);
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            batch.add(&words);
        })
    };
    let stand = |name, command, db, batches| Stand {
        name,
        command,
        db,
        batches,
        usec: Samples::default(),
        cpu: Samples::default(),
    };
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let guarded = writes(&|lock, owner, token, data| {
        words(&["LOCK.GUARD", lock, owner, token, "SET", data, VALUE])
    });
    let checked =
        writes(&|lock, _, token, data| words(&["EVALSHA", &script, "2", lock, data, token, VALUE]));
    let bare = writes(&|_, _, _, data| words(&["SET", data, VALUE]));
    [
        stand("SET inside LOCK.GUARD", "LOCK.GUARD", 0, guarded),
        stand(
            "SET inside a script that checks a token",
            "evalsha",
            1,
            checked,
        ),
        stand("SET alone", "set", 2, bare),
    ]
}

const VALUE: &str = "0123456789abcdef0123456789abcdef";
