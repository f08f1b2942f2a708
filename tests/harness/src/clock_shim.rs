//! Gives a server its own wall clock, which a test can step, and its own boot-time clock, by a library that is loaded into it.
//!
//! `clock_shim.c` is compiled once per test program, with `cc`. The server's other clocks and those of the test do not
//! change. The same library can make the server believe that it is on another machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use crate::c_library;

/// A step of the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockStep {
    /// Into the future.
    Forward(Duration),
    /// Into the past.
    Back(Duration),
}

impl ClockStep {
    pub(crate) fn micros(self) -> i64 {
        let micros = |by: Duration| {
            i64::try_from(by.as_micros()).expect("a step of less than 290,000 years")
        };
        match self {
            ClockStep::Forward(by) => micros(by),
            ClockStep::Back(by) => -micros(by),
        }
    }
}

/// The environment of a process that reads its wall clock through the shim, with the offset that a file in `dir` has.
pub(crate) fn envs(dir: &Path, first: ClockStep) -> [(String, String); 2] {
    let offset = offset_file(dir);
    if !offset.exists() {
        fs::write(
            &offset,
            [first.micros(), 0, 0].map(i64::to_ne_bytes).concat(),
        )
        .expect("the server's folder can be written");
    }
    let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    [
        ("LD_PRELOAD".to_owned(), text(library())),
        ("MORTISE_CLOCK".to_owned(), text(&offset)),
    ]
}

/// The environment of a server in `dir` that is on a machine of its own.
pub(crate) fn machine_envs(dir: &Path) -> [(String, String); 2] {
    let files = [
        ("MORTISE_BOOT_ID", boot_file(dir)),
        ("MORTISE_MACHINE_ID", dir.join("machine-id")),
    ];
    files.map(|(name, file)| {
        if !file.exists() {
            write_new_id(&file);
        }
        let path = file.to_str().expect("a path in UTF-8");
        (name.to_owned(), path.to_owned())
    })
}

/// An id that no other machine of the test run has, and no other boot of this one.
pub(crate) fn write_new_id(file: &Path) {
    static IDS: AtomicU32 = AtomicU32::new(0);
    let (test, number) = (process::id(), IDS.fetch_add(1, Relaxed));
    let id = format!("{test:08x}-{number:04x}-4000-8000-000000000000\n");
    fs::write(file, id).expect("the server's folder can be written");
}

pub(crate) fn boot_file(dir: &Path) -> PathBuf {
    dir.join("boot-id")
}

pub(crate) fn offset_file(dir: &Path) -> PathBuf {
    dir.join("clock-offset")
}

/// The compiled shim.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| c_library::compile("clock_shim", &["-ldl"]))
}
