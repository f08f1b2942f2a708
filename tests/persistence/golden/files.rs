//! The files of the format, ready for a server to load, and the ids in them of the machine that wrote them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_harness::{Builder, ClockStep, Envelope, Server, bytes, cmd, wall_micros};

use super::history::MADE_AT;

/// Replaces that machine's boot id in the files.
const ANOTHER_BOOT: [u8; 16] = *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f";
/// Replaces that machine's own id in the files.
const ANOTHER_MACHINE: [u8; 8] = *b"\x10\x11\x12\x13\x14\x15\x16\x17";

/// Which machine has written the files that a server loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writer {
    /// The loading one, so their leases have kept running.
    ThisMachine,
    /// Another one, whose clock may show any time.
    AnotherMachine,
}

/// The folder of the format's files.
pub(crate) fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/persistence/golden/v1")
}

/// A server whose wall clock shows the time `later` milliseconds after the files were made.
pub(crate) fn at(later: i64) -> Builder {
    let micros = wall_micros() - (MADE_AT + 1_000 * later);
    let step = Duration::from_micros(micros.unsigned_abs());
    let builder = Server::builder().on_another_machine(if micros > 0 {
        ClockStep::Back(step)
    } else {
        ClockStep::Forward(step)
    });
    // The tests read its dumps.
    builder.config("rdbcompression", "no")
}

/// The ways to load the files, each with a name for messages.
pub(crate) const WAYS: [(&str, Load); 2] = [("RDB", from_rdb), ("AOF", from_aof)];

/// Starts a server with the files when a time, in milliseconds, has passed since they were made.
pub(crate) type Load = fn(Writer, i64) -> Server;

fn from_rdb(writer: Writer, later: i64) -> Server {
    let mut server = at(later).start();
    let here = Ids::of(&server);
    server.sigkill();
    let file = server.dir().join("dump.rdb");
    fs::copy(golden().join("dump.rdb"), &file).unwrap();
    writer.name_in(&file, here);
    server.start_again();
    server
}

fn from_aof(writer: Writer, later: i64) -> Server {
    let mut server = at(later).config("appendonly", "yes").start();
    let here = Ids::of(&server);
    server.sigkill();
    let dir = server.dir().join("appendonlydir");
    fs::remove_dir_all(&dir).unwrap();
    copy_all(&golden().join("appendonlydir"), &dir);
    for entry in fs::read_dir(dir).unwrap() {
        writer.name_in(&entry.unwrap().path(), here);
    }
    server.start_again();
    server
}

impl Writer {
    /// Makes the file name this machine if it is the writer.
    fn name_in(self, file: &Path, here: Ids) {
        if self == Self::ThisMachine {
            let mut bytes = fs::read(file).unwrap();
            replace_all(&mut bytes, &ANOTHER_MACHINE, &here.machine);
            fs::write(file, bytes).unwrap();
        }
    }
}

/// The ids by which a server's data name its machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ids {
    boot: [u8; 16],
    machine: [u8; 8],
}

impl Ids {
    /// Reads from a dump of `server` its boot and machine, which follow the number of the format.
    pub(crate) fn of(server: &Server) -> Ids {
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "ids", "a", 1_000);
        let body = Envelope::open(&bytes(&cmd!(conn, "DUMP", "ids")));
        cmd!(conn, "LOCK.RELEASE", "ids", "a");
        let ids = Ids {
            boot: body[1..17].try_into().unwrap(),
            machine: body[17..25].try_into().unwrap(),
        };
        assert_ne!(ids.machine, [0; 8], "the machine is known");
        ids
    }

    pub(crate) fn forget_in(self, file: &Path) {
        let mut bytes = fs::read(file).unwrap();
        self.forget(&mut bytes);
        fs::write(file, bytes).unwrap();
    }

    /// Replaces the ids in the files.
    pub(crate) fn forget(self, bytes: &mut [u8]) {
        replace_all(bytes, &self.boot, &ANOTHER_BOOT);
        replace_all(bytes, &self.machine, &ANOTHER_MACHINE);
    }
}

fn replace_all(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    for at in 0..bytes.len().saturating_sub(old.len() - 1) {
        if bytes[at..].starts_with(old) {
            bytes[at..at + old.len()].copy_from_slice(new);
        }
    }
}

pub(crate) fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}
