//! One of the ten processes: waits for the lock, sells a ticket, releases the lock, again and
//! again. It prints a line for each step.

use std::io::{self, Read, Write};
use std::process;
use std::thread;

use mortise_client::blocking::{Guard, Wait};
use mortise_client::server::redis::{self, Connection};
use mortise_client::{Client, Error, Owner};

use crate::ledger::{LEDGER, LOCK, Sale};
use crate::options::Actor;

/// Plays until the process that started it ends.
pub(crate) fn play(part: &Actor) -> Result<(), String> {
    thread::spawn(|| {
        // Nobody ever writes there: the pipe ends with the process that holds the other end.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        process::exit(0);
    });
    try_play(part).map_err(|error| error.to_string())
}

fn try_play(part: &Actor) -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::connect(&part.url).wait()?;
    let mut data = redis::Client::open(&*part.url)?.get_connection()?;
    let lock = client
        .lock(LOCK)
        .owner(&Owner::named(part.name.as_str())?)
        .lease(part.lease)
        .wait_forever();
    loop {
        say("waits")?;
        let guard = lock.acquire().wait_guard()?;
        say(&format!("holds {}", guard.token()))?;
        sell(part, &guard, &mut data)?;
        // The write has already reported whether the lock was still held.
        match guard.release() {
            Ok(()) | Err(Error::Lost(_)) => {}
            Err(error) => return Err(error.into()),
        }
        thread::sleep(part.work / 4);
    }
}

/// Reads, thinks, writes. A process that was frozen while it thought does not know that, and writes like any other. The server knows
/// better.
fn sell(
    part: &Actor,
    guard: &Guard,
    data: &mut Connection,
) -> Result<(), Box<dyn std::error::Error>> {
    let last: Option<String> = redis::cmd("LINDEX").arg(LEDGER).arg(-1).query(data)?;
    let last = last.and_then(|line| Sale::read(&line));
    thread::sleep(part.work);
    let sale = Sale {
        ticket: last.map_or(1, |last| last.ticket + 1),
        token: guard.token().get(),
        seller: part.name.clone(),
    };
    let written: redis::RedisResult<u64> = redis::cmd("LOCK.GUARD")
        .arg(LOCK)
        .arg(guard.owner())
        .arg(sale.token)
        .arg("RPUSH")
        .arg(LEDGER)
        .arg(sale.line())
        .query(data);
    match written {
        Ok(_) => say(&format!("sold {} {}", sale.token, sale.ticket))?,
        Err(error) if error.code() == Some("NOTHELD") => {
            say(&format!("refused {} {}", sale.token, sale.ticket))?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
