//! The append-only file of a server.

use std::fs;
use std::path::PathBuf;

use crate::builder::Builder;
use crate::eventually::eventually;
use crate::server::Server;

impl Builder {
    /// With an append-only file that is written before each reply.
    pub fn appending(self) -> Self {
        self.config("appendonly", "yes")
            .config("appendfsync", "always")
    }
}

impl Server {
    /// The file to which it appends.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn append_only_file(&self) -> PathBuf {
        let files = fs::read_dir(self.dir().join("appendonlydir")).expect("a folder");
        let mut files = files.map(|file| file.expect("a file").path());
        let grows = |file: &PathBuf| file.to_string_lossy().ends_with(".incr.aof");
        files.find(grows).expect("a file that grows")
    }

    /// Rewrites it.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn rewrite(&self) {
        self.await_rewrite();
        crate::cmd!(self.connect(), "BGREWRITEAOF");
        self.await_rewrite();
    }

    /// Waits until no rewrite is going on.
    ///
    /// # Panics
    /// If the last one has failed, or that takes more than 30 seconds.
    #[track_caller]
    pub fn await_rewrite(&self) {
        eventually("no rewrite is going on", || {
            let state = self.info("persistence");
            let fields = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"];
            let done = fields.iter().all(|name| state[*name] == "0")
                && state["aof_last_bgrewrite_status"] == "ok";
            if done { Ok(()) } else { Err(state) }
        });
    }
}
