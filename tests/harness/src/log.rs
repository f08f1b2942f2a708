//! A server's log, and whether it shows a crash.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// How much of a log is worth showing when a test fails.
const TAIL_LINES: usize = 60;

/// Words that only a server (or a module) in distress writes.
const CRASH_MARKS: [&str; 5] = [
    "REDIS BUG REPORT",
    "VALKEY BUG REPORT",
    "ASSERTION FAILED",
    "panicked at",
    "AddressSanitizer",
];

/// The log file and the two output streams of one server, in files of their own even where a folder is used twice.
#[derive(Debug)]
pub(crate) struct Log {
    logfile: PathBuf,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Log {
    pub(crate) fn new(dir: &Path) -> Log {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let file = |kind: &str| dir.join(format!("{kind}-{}-{serial}.log", process::id()));
        Log {
            logfile: file("server"),
            stdout: file("stdout"),
            stderr: file("stderr"),
        }
    }

    pub(crate) fn logfile(&self) -> &Path {
        &self.logfile
    }

    pub(crate) fn stdout(&self) -> io::Result<File> {
        append(&self.stdout)
    }

    pub(crate) fn stderr(&self) -> io::Result<File> {
        append(&self.stderr)
    }

    /// Everything written so far: the log file, then stdout, then stderr.
    pub(crate) fn text(&self) -> String {
        [&self.logfile, &self.stdout, &self.stderr]
            .iter()
            .filter_map(|path| fs::read(path).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The last lines of a log.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// The first line that shows a crash.
pub(crate) fn crash_line(log: &str) -> Option<&str> {
    log.lines()
        .find(|line| CRASH_MARKS.iter().any(|mark| line.contains(mark)))
}
