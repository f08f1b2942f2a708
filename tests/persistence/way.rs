//! The ways in which a server keeps its data.

use std::thread;

use mortise_harness::{Server, Shutdown, cmd, eventually};

/// How the data leave the process and come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// `SHUTDOWN SAVE`.
    Save,
    /// `BGSAVE`, then SIGKILL.
    BackgroundSave,
    /// A clean end with an append-only file.
    AppendEverySecond,
    /// SIGKILL with an append-only file that is written before each reply.
    AppendAlways,
    /// `BGREWRITEAOF`, the base in the format of RDB; then SIGKILL.
    RewritePreamble,
    /// `BGREWRITEAOF`, the base made of commands; then SIGKILL.
    RewriteCommands,
    /// An append-only file and an RDB file, which the former overrules.
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
        let appending = |fsync: &str| {
            Server::builder()
                .config("appendonly", "yes")
                .config("appendfsync", fsync)
        };
        match self {
            Way::Save | Way::BackgroundSave | Way::Reload => builder,
            Way::AppendEverySecond | Way::LoadAppendOnlyFile | Way::Both => appending("everysec"),
            Way::AppendAlways => appending("always"),
            Way::RewritePreamble => appending("always").config("aof-use-rdb-preamble", "yes"),
            Way::RewriteCommands => appending("always").config("aof-use-rdb-preamble", "no"),
        }
        .start()
    }

    /// What may be done while the data are being written.
    pub(crate) fn write_out(self, server: &Server) {
        let mut conn = server.connect();
        match self {
            Way::BackgroundSave => {
                cmd!(conn, "BGSAVE");
                await_background(server, "rdb_bgsave_in_progress", "rdb_last_bgsave_status");
            }
            Way::RewritePreamble | Way::RewriteCommands => {
                cmd!(conn, "BGREWRITEAOF");
                await_background(
                    server,
                    "aof_rewrite_in_progress",
                    "aof_last_bgrewrite_status",
                );
            }
            _ => {}
        }
    }

    /// Takes the data from the process and gives them back, after `pause` between the two.
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

    /// Whether what is done after [`Way::write_out`] is kept as well.
    pub(crate) fn keeps_the_tail(self) -> bool {
        self != Way::BackgroundSave
    }
}

/// Runs `test` for all ways side by side, because it waits more than it works.
pub(crate) fn side_by_side(test: impl Fn(Way) + Sync) {
    thread::scope(|scope| {
        for way in ALL {
            let test = &test;
            scope.spawn(move || test(way));
        }
    });
}

#[track_caller]
fn await_background(server: &Server, progress: &str, status: &str) {
    eventually("the child is done", || {
        let state = server.info("persistence");
        let done = state[progress] == "0"
            && state["aof_rewrite_scheduled"] == "0"
            && state[status] == "ok";
        if done { Ok(()) } else { Err(state) }
    });
}
