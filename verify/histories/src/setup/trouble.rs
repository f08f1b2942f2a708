//! Faults that the servers of every set-up may have: each stays the primary or the replica that it is.

use std::thread;
use std::time::Duration;

use mortise_harness::{Dice, Server, cmd, try_cmd};

use super::{Diary, Setup};

#[derive(Debug, Clone, Copy)]
enum Trouble {
    Sleep,
    Pause(&'static str),
    KickAll,
    Fill,
    Save,
    Rewrite,
}

const TROUBLES: [Trouble; 7] = [
    Trouble::Sleep,
    Trouble::Pause("WRITE"),
    Trouble::Pause("ALL"),
    Trouble::KickAll,
    Trouble::Fill,
    Trouble::Save,
    Trouble::Rewrite,
];

/// Troubles a server of the set-up, every other time one that is a primary, and returns when that is over.
pub(crate) fn trouble(setup: &dyn Setup, dice: &mut Dice, diary: &Diary) {
    let mut servers = setup.servers();
    let primaries = setup.primaries();
    if dice.roll(2) == 0 && !primaries.is_empty() {
        servers = primaries;
    }
    let server = *dice.pick(&servers);
    let trouble = *dice.pick(&TROUBLES);
    diary.fault(&format!("{trouble:?}"), || trouble.happens_to(server, dice));
}

impl Trouble {
    fn happens_to(self, server: &Server, dice: &mut Dice) {
        let mut conn = server.connect();
        match self {
            Trouble::Sleep => {
                let seconds = (dice.roll(15) + 1) as f64 / 20.0;
                cmd!(conn, "DEBUG", "SLEEP", seconds);
            }
            Trouble::Pause(what) => {
                let ms = 50 + dice.roll(700);
                cmd!(conn, "CLIENT", "PAUSE", ms, what);
                thread::sleep(Duration::from_millis(ms));
            }
            Trouble::KickAll => {
                cmd!(conn, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
            }
            Trouble::Fill => {
                cmd!(conn, "CONFIG", "SET", "maxmemory", "1mb");
                thread::sleep(Duration::from_millis(50 + dice.roll(1_000)));
                // A Sentinel may have closed the connection.
                cmd!(server.connect(), "CONFIG", "SET", "maxmemory", "0");
            }
            // Both are refused while another fork runs.
            Trouble::Save => {
                let _ = try_cmd!(conn, "BGSAVE");
            }
            Trouble::Rewrite => {
                let _ = try_cmd!(conn, "BGREWRITEAOF");
            }
        }
    }
}
