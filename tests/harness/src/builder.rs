//! Options of a server to start.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock_shim::ClockStep;
use crate::conn::Conn;
use crate::link::Link;
use crate::server::Server;
use crate::setup::Setup;
use crate::start_error::{StartError, StartFailure};
use crate::work_dir::WorkDir;

/// How many ports the harness tries before a start fails.
const PORT_ATTEMPTS: u32 = 20;

/// Options of a server to start; from [`Server::builder`].
#[derive(Debug)]
pub struct Builder {
    setup: Setup,
    dir: Option<PathBuf>,
}

impl Server {
    /// Starts a server with the module, without persistence.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    pub fn start() -> Server {
        Server::builder().start()
    }

    /// The same, and no node of a cluster in any case: see [`Builder::alone`].
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    pub fn start_alone() -> Server {
        Server::builder().alone().start()
    }

    /// [`Server::start`], and a first connection.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    pub fn start_connected() -> (Server, Conn) {
        Server::builder().start_connected()
    }

    /// A server with these lines of `redis.conf`, and a first connection: `Server::configured("lock.max-waiters 2; appendonly yes")`.
    ///
    /// # Panics
    /// If it does not come up.
    #[track_caller]
    pub fn configured(lines: &str) -> (Server, Conn) {
        let lines = lines.split("; ").filter_map(|line| line.split_once(' '));
        let add = |builder: Builder, (name, value): (&str, &str)| builder.config(name, value);
        lines.fold(Server::builder(), add).start_connected()
    }

    /// Options for another kind of server.
    pub fn builder() -> Builder {
        Builder {
            setup: Setup::new(),
            dir: None,
        }
    }
}

impl Builder {
    /// A line of `redis.conf`: `config("appendonly", "yes")`, `config("save", "60 1")`. An empty value is written `""`.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.setup.set_line(name, value);
        self
    }

    /// An argument of `loadmodule`, a name and its value: `module_arg("max-lease", "5000")`.
    pub fn module_arg(mut self, name: &str, value: &str) -> Self {
        self.setup.set_module_arg(name, value);
        self
    }

    /// Runs another server than the one under test: one of [`other_servers`](crate::other_servers).
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.setup.program = Some(program.into());
        self
    }

    /// Never starts a node of a cluster, even if the tests run on such (`MORTISE_CLUSTER`): for tests of what clusters lack, several
    /// databases or commands with keys of several slots.
    pub fn alone(mut self) -> Self {
        self.setup.alone = true;
        self
    }

    /// Starts the server without the module.
    pub fn without_module(mut self) -> Self {
        self.setup.module = false;
        self
    }

    /// Makes the server a replica of `primary`. [`wait_for_sync`](crate::wait_for_sync) waits until it has caught up.
    pub fn replica_of(self, primary: &Server) -> Self {
        self.replica_at(primary.port())
    }

    /// Makes the server a replica of the server behind `link`.
    pub fn replica_over(self, link: &Link) -> Self {
        self.replica_at(link.port())
    }

    /// Makes the server a replica of the one that listens on `port` of 127.0.0.1.
    pub fn replica_at(self, port: u16) -> Self {
        self.config("replicaof", &format!("127.0.0.1 {port}"))
    }

    pub(crate) fn is_sentinel(&self) -> bool {
        self.setup.sentinel
    }

    /// Connects to others from `address`, and announces `port` to them, or `bus` for the bus of a cluster.
    pub(crate) fn announced(self, address: IpAddr, port: u16, bus: u16) -> Self {
        let port = port.to_string();
        let builder = self.config("bind-source-addr", &address.to_string());
        if builder.setup.sentinel {
            return builder
                .config("sentinel", "announce-ip 127.0.0.1")
                .config("sentinel", &format!("announce-port {port}"));
        }
        builder
            .config("replica-announce-ip", "127.0.0.1")
            .config("replica-announce-port", &port)
            .config("cluster-announce-ip", "127.0.0.1")
            .config("cluster-announce-port", &port)
            .config("cluster-announce-bus-port", &bus.to_string())
    }

    /// Starts a Sentinel instead of a server that holds data; [`Builder::watching`] says what it
    /// watches.
    pub fn sentinel(mut self) -> Self {
        self.setup.sentinel = true;
        self.without_module()
    }

    /// For a Sentinel: watches the primary on `port` under `name` together with other Sentinels, `quorum` of which must agree
    /// that it is down.
    pub fn watching(self, name: &str, port: u16, quorum: u32) -> Self {
        self.config(
            "sentinel",
            &format!("monitor {name} 127.0.0.1 {port} {quorum}"),
        )
        .config("sentinel", &format!("down-after-milliseconds {name} 1500"))
        .config("sentinel", &format!("failover-timeout {name} 5000"))
    }

    /// Works in `dir`, created if missing and kept afterwards, instead of in a folder that is deleted with the server.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// An environment variable of the server process.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.setup.envs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Lets valgrind watch the server's memory, which makes it some twenty times slower: misused memory fails the test that owns the
    /// server.
    pub fn under_valgrind(mut self) -> Self {
        self.setup.valgrind = true;
        self
    }

    /// Lets [`Server::run_out_of_entropy`] work.
    pub fn may_run_out_of_entropy(mut self) -> Self {
        self.setup.entropy_ends = true;
        self
    }

    /// Listens on a Unix socket, too: [`Server::connect_unix`], [`Server::socket`].
    pub fn unix_socket(mut self) -> Self {
        self.setup.unix_socket = true;
        self
    }

    /// Gives the server a wall clock that [`Server::step_clock`] steps.
    pub fn clock_shim(self) -> Self {
        self.clock_shim_at(ClockStep::Forward(Duration::ZERO))
    }

    /// The same, with a wall clock that is off from the start.
    pub fn clock_shim_at(mut self, step: ClockStep) -> Self {
        self.setup.clock = Some(step);
        self
    }

    /// Puts the server on a machine of its own: other ids of machine and boot, another boot-time clock, and a wall clock
    /// that is off by `step`. A restart of the server does not reboot the machine: see [`Server::reboot_machine`].
    pub fn on_another_machine(mut self, step: ClockStep) -> Self {
        self.setup.machine = true;
        self.clock_shim_at(step)
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// If it does not come up; the message holds its log.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(error) => panic!("{error}"),
        }
    }

    /// [`Builder::start`], and a first connection.
    ///
    /// # Panics
    /// If the server does not come up; the message holds its log.
    #[track_caller]
    pub fn start_connected(self) -> (Server, Conn) {
        let server = self.start();
        let conn = server.connect();
        (server, conn)
    }

    /// Starts the server and waits until it answers, or has ended because it refuses its configuration.
    ///
    /// # Panics
    /// If the module has not been built, or the folder cannot be written.
    pub fn try_start(self) -> Result<Server, StartError> {
        let mut failure = None;
        for _ in 0..PORT_ATTEMPTS {
            match Server::launch(self.setup.clone(), self.work_dir()) {
                Ok(server) => return Ok(server),
                Err(StartFailure::PortTaken(error)) => failure = Some(error),
                Err(StartFailure::Other(error)) => return Err(error),
            }
        }
        Err(failure.expect("at least one attempt was made"))
    }

    fn work_dir(&self) -> WorkDir {
        match &self.dir {
            Some(dir) => {
                fs::create_dir_all(dir).expect("the server's folder can be created");
                WorkDir::Kept(
                    dir.canonicalize()
                        .expect("a folder just created has a path"),
                )
            }
            None => WorkDir::temporary(),
        }
    }
}
