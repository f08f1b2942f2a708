//! The ways in which a server keeps its data.

use std::thread;

use mortise_harness::{Server, Shutdown, cmd, eventually};

/// A way to keep the data over a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// `SHUTDOWN SAVE`.
    Save,
    /// `BGSAVE`, then SIGKILL.
    BackgroundSave,
    /// A clean shutdown with an append-only file.
    AppendEverySecond,
    /// SIGKILL with an append-only file that is written before each reply.
    AppendAlways,
    /// `BGREWRITEAOF`, the base in the format of RDB; then SIGKILL.
    RewritePreamble,
    /// `BGREWRITEAOF`, the base made of commands; then SIGKILL.
    RewriteCommands,
    /// An append-only file and an RDB file; the former takes precedence.
    Both,
    /// `DEBUG RELOAD`.
    Reload,
    /// `DEBUG LOADAOF`.
    LoadAppendOnlyFile,
}

pub(crate) const ALL: [Way; 9] = [
    Way::Save,
    Way::BackgroundSave,
    Way::AppendEverySecond,
    Way::AppendAlways,
    Way::RewritePreamble,
    Way::RewriteCommands,
    Way::Both,
    Way::Reload,
    Way::LoadAppendOnlyFile,
];

impl Way {
    pub(crate) fn start(self) -> Server {
        // Shown if the test fails.
        eprintln!("the way of {self:?}");
        let builder = Server::builder();
        match self {
            Way::Save | Way::BackgroundSave | Way::Reload => builder,
            Way::AppendEverySecond | Way::LoadAppendOnlyFile | Way::Both => {
                builder.config("appendonly", "yes")
            }
            Way::AppendAlways => builder.appending(),
            Way::RewritePreamble => builder.appending().config("aof-use-rdb-preamble", "yes"),
            Way::RewriteCommands => builder.appending().config("aof-use-rdb-preamble", "no"),
        }
        .start()
    }

    /// Writes the data, in the ways that do so at a certain moment.
    pub(crate) fn write_out(self, server: &Server) {
        match self {
            Way::BackgroundSave => {
                cmd!(server.connect(), "BGSAVE");
                eventually("the child is done", || {
                    let state = server.info("persistence");
                    let saves = state["rdb_bgsave_in_progress"] == "1";
                    let done = !saves && state["rdb_last_bgsave_status"] == "ok";
                    if done { Ok(()) } else { Err(state) }
                });
            }
            Way::RewritePreamble | Way::RewriteCommands => server.rewrite(),
            _ => {}
        }
    }

    /// Ends the process, calls `pause`, and starts it again with the data.
    pub(crate) fn come_back_after(self, server: &mut Server, pause: impl Fn()) {
        self.write_out(server);
        match self {
            Way::Reload => {
                cmd!(server.connect(), "DEBUG", "RELOAD");
                return;
            }
            Way::LoadAppendOnlyFile => {
                cmd!(server.connect(), "DEBUG", "LOADAOF");
                return;
            }
            Way::Save | Way::Both => server.shutdown(Shutdown::Save),
            Way::AppendEverySecond => server.shutdown(Shutdown::NoSave),
            Way::BackgroundSave
            | Way::AppendAlways
            | Way::RewritePreamble
            | Way::RewriteCommands => server.sigkill(),
        }
        pause();
        server.start_again();
    }

    pub(crate) fn come_back(self, server: &mut Server) {
        self.come_back_after(server, || {});
    }

    /// Whether changes after [`Way::write_out`] are kept as well.
    pub(crate) fn keeps_the_tail(self) -> bool {
        self != Way::BackgroundSave
    }
}

/// Runs `test` for all ways in parallel, because it mostly waits.
pub(crate) fn side_by_side(test: impl Fn(Way) + Sync) {
    thread::scope(|scope| {
        for way in ALL {
            let test = &test;
            scope.spawn(move || test(way));
        }
    });
}
