//! Another process that holds a lock, and says what it sees of it.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Stdio};

use mortise_harness::Server;

use crate::support::process::other_half;

pub(crate) struct Holder {
    pub(crate) process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    /// Runs this ignored test, which acquires a lock of the server and has its wall clock, and waits until it says that it holds.
    pub(crate) fn start(test: &str, server: &Server) -> Holder {
        let mut process = other_half(test, server)
            .envs(server.clock_envs())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut holder = Holder { process, lines };
        holder.answer("holding");
        holder
    }

    /// Writes a line to it, and returns the line that begins so, too.
    pub(crate) fn ask(&mut self, what: &str) -> String {
        let input = self.process.stdin.as_mut().unwrap();
        writeln!(input, "{what}").unwrap();
        self.answer(what)
    }

    /// The next line that begins so.
    pub(crate) fn answer(&mut self, begin: &str) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        let found = lines.find(|line| line.starts_with(begin));
        found.unwrap_or_else(|| panic!("the holder ended without saying {begin:?}"))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // The process ends with its input.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
