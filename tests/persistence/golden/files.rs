//! The files of a format, ready for a server to load, and the ids in them of the machine that wrote them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mortise_harness::{Builder, ClockStep, Envelope, Server, bytes, cmd, wall_micros};

use super::history::MADE_AT;

/// Replaces that machine's boot id in the files.
const ANOTHER_BOOT: [u8; 16] = *b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f";
/// Replaces that machine's own id, in formats that have one.
const ANOTHER_MACHINE: [u8; 8] = *b"\x10\x11\x12\x13\x14\x15\x16\x17";
/// The files of one format, and what the test changes in them before loading.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    folder: &'static str,
    /// Whether they name the loading machine as the one that wrote them.
    same_machine: bool,
    /// Whether they mark revoked holds.
    pub(crate) marks_revoked: bool,
}

/// Files whose leases have kept running. The first format does not name the machine.
pub(crate) const OF_THIS_MACHINE: [Format; 3] = [
    Format {
        folder: "v1",
        same_machine: false,
        marks_revoked: false,
    },
    Format {
        folder: "v2",
        same_machine: true,
        marks_revoked: false,
    },
    Format {
        folder: "v3",
        same_machine: true,
        marks_revoked: true,
    },
];
/// Files of another machine, whose clock may show any time.
pub(crate) const OF_ANOTHER_MACHINE: [Format; 2] = [
    Format {
        folder: "v2",
        same_machine: false,
        marks_revoked: false,
    },
    Format {
        folder: "v3",
        same_machine: false,
        marks_revoked: true,
    },
];

/// The folder of a format's files.
pub(crate) fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/persistence/golden")
        .join(folder)
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
pub(crate) type Load = fn(Format, i64) -> Server;

fn from_rdb(format: Format, later: i64) -> Server {
    let mut server = at(later).start();
    let here = Ids::of(&server);
    server.sigkill();
    let file = server.dir().join("dump.rdb");
    fs::copy(golden(format.folder).join("dump.rdb"), &file).unwrap();
    format.put_machine(here, &file);
    server.start_again();
    server
}

fn from_aof(format: Format, later: i64) -> Server {
    let mut server = at(later).config("appendonly", "yes").start();
    let here = Ids::of(&server);
    server.sigkill();
    let dir = server.dir().join("appendonlydir");
    fs::remove_dir_all(&dir).unwrap();
    copy_all(&golden(format.folder).join("appendonlydir"), &dir);
    for entry in fs::read_dir(dir).unwrap() {
        format.put_machine(here, &entry.unwrap().path());
    }
    server.start_again();
    server
}

impl Format {
    fn put_machine(self, here: Ids, file: &Path) {
        if self.same_machine {
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
    /// Reads from a dump of `server` its version, boot and machine.
    pub(crate) fn of(server: &Server) -> Ids {
        let mut conn = server.connect();
        cmd!(conn, "LOCK.ACQUIRE", "ids", "a", 1_000);
        let body = Envelope::open(&bytes(&cmd!(conn, "DUMP", "ids")));
        cmd!(conn, "LOCK.RELEASE", "ids", "a");
        let ids = Ids {
            boot: body[1..17].try_into().unwrap(),
            machine: body[17..25].try_into().unwrap(),
        };
        assert_ne!(ids.machine, [0; 8], "the format has it");
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
