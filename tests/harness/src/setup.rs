//! The settings that a server is started with, and its `redis.conf`.

use std::env;
use std::path::{Path, PathBuf};

use crate::c_library;
use crate::clock_shim::{self, ClockStep};
use crate::entropy;
use crate::module::module_path;
use crate::time_namespace;
use crate::valgrind;

/// The part of a server's configuration that outlives a restart.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// The program, if it differs from that of the other servers of the test run.
    pub(crate) program: Option<PathBuf>,
    pub(crate) lines: Vec<(String, String)>,
    pub(crate) module: bool,
    pub(crate) module_args: Vec<(String, String)>,
    pub(crate) envs: Vec<(String, String)>,
    pub(crate) unix_socket: bool,
    pub(crate) sentinel: bool,
    /// Whether it is no node of a cluster, even if the tests run on such.
    pub(crate) alone: bool,
    /// How far its wall clock is off, if that can be stepped.
    pub(crate) clock: Option<ClockStep>,
    /// Whether it has its own ids of machine and boot, and its own boot-time clock, as on another machine.
    pub(crate) machine: bool,
    /// By how many seconds its boot-time clock is ahead of the machine's, in a time namespace of its own.
    pub(crate) boot_offset: Option<u64>,
    /// valgrind watches its memory.
    pub(crate) valgrind: bool,
    /// Whether it may run out of random numbers, so that its module panics.
    pub(crate) entropy_ends: bool,
}

impl Setup {
    pub(crate) fn new() -> Setup {
        Setup {
            program: None,
            lines: Vec::new(),
            module: true,
            module_args: Vec::new(),
            envs: Vec::new(),
            unix_socket: false,
            sentinel: false,
            alone: false,
            clock: None,
            machine: false,
            boot_offset: None,
            valgrind: false,
            entropy_ends: false,
        }
    }

    pub(crate) fn set_line(&mut self, name: &str, value: &str) {
        self.lines.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn set_module_arg(&mut self, name: &str, value: &str) {
        self.module_args.retain(|(known, _)| known != name);
        self.module_args.push((name.to_owned(), value.to_owned()));
    }

    /// The program to run, and what stands before the configuration file on its command line.
    pub(crate) fn command(&self, dir: &Path) -> Vec<String> {
        let program = match &self.program {
            Some(program) => program.to_string_lossy().into_owned(),
            None => server_program(),
        };
        match (self.valgrind || self.ends_by_itself(), self.boot_offset) {
            (true, _) => valgrind::command(dir, &program),
            (false, Some(offset)) => time_namespace::command(offset, &program),
            (false, None) => vec![program],
        }
    }

    /// The environment of the server's process.
    pub(crate) fn envs(&self, dir: &Path) -> Vec<(String, String)> {
        let mut envs = self.envs.clone();
        if let Some(first) = self.clock {
            envs.extend(clock_shim::envs(dir, first));
        }
        if self.machine {
            envs.extend(clock_shim::machine_envs(dir));
        }
        if self.entropy_ends {
            envs.extend(entropy::envs(dir));
        }
        envs
    }

    /// The arguments after the configuration file on the server's command line.
    pub(crate) fn args(&self) -> &[&str] {
        if self.sentinel { &["--sentinel"] } else { &[] }
    }

    /// The password of the default user, if one is configured.
    pub(crate) fn password(&self) -> Option<&str> {
        let line = self.lines.iter().rfind(|(name, _)| name == "requirepass")?;
        Some(line.1.trim_matches('"'))
    }

    /// Whether it becomes a cluster of one node: the tests run on such, and it is of no other kind.
    pub(crate) fn owns_all_slots(&self) -> bool {
        let special = ["cluster-enabled", "replicaof"];
        let is_special = self
            .lines
            .iter()
            .any(|(name, _)| special.contains(&&**name));
        on_cluster_nodes() && self.module && !self.sentinel && !self.alone && !is_special
    }

    /// Whether valgrind watches it like all servers, and has to see it end.
    pub(crate) fn ends_by_itself(&self) -> bool {
        let is_special = self.sentinel
            || self.machine
            || self.entropy_ends
            || self.clock.is_some()
            || self.boot_offset.is_some();
        self.module && self.program.is_none() && !is_special && valgrind::watches_all()
    }

    /// The text of `redis.conf`. The test's lines come after ours, so they take precedence.
    pub(crate) fn conf(&self, dir: &Path, port: u16, logfile: &Path) -> String {
        let mut conf = Conf(String::new());
        conf.line("bind", "127.0.0.1");
        conf.line("port", &port.to_string());
        conf.line("daemonize", "no");
        conf.line("dir", &quoted(&dir.to_string_lossy()));
        conf.line("logfile", &quoted(&logfile.to_string_lossy()));
        conf.line("save", "");
        conf.line("appendonly", "no");
        conf.line("enable-debug-command", "yes");
        conf.line("enable-module-command", "yes");
        // Otherwise a replica's first sync waits five seconds for more replicas.
        conf.line("repl-diskless-sync-delay", "0");
        if self.ends_by_itself() {
            for (name, value) in WATCHED {
                conf.line(name, value);
            }
            conf.line("loadmodule", &quoted(&c_library::actor().to_string_lossy()));
        }
        if self.unix_socket {
            conf.line("unixsocket", &quoted(&socket_path(dir)));
        }
        if self.owns_all_slots() {
            conf.line("cluster-enabled", "yes");
        }
        for (name, value) in &self.lines {
            conf.line(name, value);
        }
        if self.module {
            let mut words = quoted(&module_path().to_string_lossy());
            for (name, value) in &self.module_args {
                words += &format!(" {name} {}", quoted(value));
            }
            conf.line("loadmodule", &words);
        }
        conf.0
    }
}

struct Conf(String);

impl Conf {
    fn line(&mut self, name: &str, value: &str) {
        let value = if value.is_empty() { "\"\"" } else { value };
        self.0 += &format!("{name} {value}\n");
    }
}

/// Settings that show more of the module to valgrind.
const WATCHED: [(&str, &str); 8] = [
    ("io-threads", "3"),
    ("io-threads-do-reads", "yes"),
    ("lazyfree-lazy-eviction", "yes"),
    ("lazyfree-lazy-expire", "yes"),
    ("lazyfree-lazy-server-del", "yes"),
    ("lazyfree-lazy-user-del", "yes"),
    ("lazyfree-lazy-user-flush", "yes"),
    ("shutdown-timeout", "0"),
];

/// One word of `redis.conf`.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

pub(crate) fn socket_path(dir: &Path) -> String {
    dir.join("socket").to_string_lossy().into_owned()
}

/// The server to run: `MORTISE_SERVER` (a name on the path, a binary, or a script that runs one), else `redis-server`.
fn server_program() -> String {
    env::var("MORTISE_SERVER")
        .ok()
        .filter(|program| !program.is_empty())
        .unwrap_or_else(|| "redis-server".to_owned())
}

/// Whether servers are nodes of clusters unless a test needs another kind: `MORTISE_CLUSTER`.
fn on_cluster_nodes() -> bool {
    env::var("MORTISE_CLUSTER").is_ok_and(|value| !value.is_empty() && value != "0")
}
