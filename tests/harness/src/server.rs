//! A server's life: started, restarted, killed, and checked when the test is over.

mod startup;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::conn::{Conn, Protocol};
use crate::eventually::eventually;
use crate::log::{Log, crash_line, tail};
use crate::port::Port;
use crate::process::Process;
use crate::setup::{Setup, socket_path};
use crate::start_error::{StartError, StartFailure};
use crate::valgrind;
use crate::value::{info, text};
use crate::version::Version;
use crate::work_dir::WorkDir;

/// How long a server may take to come up, loading its data included, and to go down.
const LIFE_LIMIT: Duration = Duration::from_secs(30);

/// A running server. It is killed when this value is dropped, or when the process that holds it dies.
///
/// If the server crashed meanwhile (a crash report or a Rust panic in its log, or an unexpected or unclean end), dropping
/// this value panics, so no test overlooks a crash. If the test fails, the end of the server's log is printed.
/// `MORTISE_KEEP=1` keeps the temporary folders.
#[derive(Debug)]
pub struct Server {
    setup: Setup,
    work_dir: WorkDir,
    port: Port,
    log: Log,
    /// None while the test has stopped it.
    process: Option<Process>,
}

/// How [`Server::shutdown`] asks the server to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shutdown {
    /// `SHUTDOWN`: saves if save points are configured.
    AsConfigured,
    /// `SHUTDOWN SAVE`: writes an RDB file in any case.
    Save,
    /// `SHUTDOWN NOSAVE`.
    NoSave,
}

impl Server {
    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    pub(crate) fn launch(setup: Setup, work_dir: WorkDir) -> Result<Server, StartFailure> {
        let mut server = Server {
            log: Log::new(work_dir.path()),
            setup,
            work_dir,
            port: Port::claim(),
            process: None,
        };
        match server.bring_up() {
            Ok(()) => Ok(server),
            Err(error) if error.log.contains("Address already in use") => {
                Err(StartFailure::PortTaken(error))
            }
            Err(error) => Err(StartFailure::Other(error)),
        }
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The port on 127.0.0.1 for the other nodes of a cluster.
    pub(crate) fn bus_port(&self) -> u16 {
        self.port.bus()
    }

    /// The address as `127.0.0.1:port`.
    pub fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// The address as `redis://127.0.0.1:port/`.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.addr())
    }

    /// The path of the Unix socket, there after [`Builder::unix_socket`](crate::Builder::unix_socket).
    pub fn socket(&self) -> PathBuf {
        socket_path(self.dir()).into()
    }

    /// The folder the server works in.
    pub fn dir(&self) -> &Path {
        self.work_dir.path()
    }

    /// All output of the server since this value was created: its log, its stdout and its stderr.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// The server's process id.
    ///
    /// # Panics
    /// While it is down.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.running().id()
    }

    /// The server's flavour and version.
    pub fn version(&self) -> Version {
        Version::ask(&mut self.connect())
    }

    /// A new connection that speaks RESP2.
    ///
    /// # Panics
    /// If the server cannot be reached.
    #[track_caller]
    pub fn connect(&self) -> Conn {
        self.greeted(Conn::tcp(self.port()), Protocol::Resp2)
    }

    /// A new connection that speaks RESP3.
    ///
    /// # Panics
    /// If the server cannot be reached.
    #[track_caller]
    pub fn connect_resp3(&self) -> Conn {
        self.greeted(Conn::tcp(self.port()), Protocol::Resp3)
    }

    /// A new connection over the Unix socket, RESP2.
    ///
    /// # Panics
    /// If the server cannot be reached, or was started without [`Builder::unix_socket`](crate::Builder::unix_socket).
    #[track_caller]
    pub fn connect_unix(&self) -> Conn {
        self.greeted(Conn::unix(&self.socket()), Protocol::Resp2)
    }

    #[track_caller]
    fn greeted(&self, conn: io::Result<Conn>, protocol: Protocol) -> Conn {
        let mut conn = match conn {
            Ok(conn) => conn,
            Err(error) => panic!(
                "no connection to the server on port {}: {error}",
                self.port()
            ),
        };
        match conn.greet(protocol, self.setup.password()) {
            Ok(()) => conn,
            Err(error) => panic!("the server on port {} greets with {error}", self.port()),
        }
    }

    /// Waits until the command that `conn` sent last is blocked in the server.
    ///
    /// # Panics
    /// If it is not blocked within 30 seconds: it may have got a reply.
    #[track_caller]
    pub fn await_blocked(&self, conn: &Conn) {
        let id = conn.client_id().to_string();
        let mut observer = self.connect();
        eventually("the client is blocked", || {
            let line = text(&observer.cmd(&["CLIENT", "LIST", "ID", &id]));
            let flags = line
                .split(' ')
                .find_map(|field| field.strip_prefix("flags="));
            match flags {
                Some(flags) if flags.contains('b') => Ok(()),
                _ => Err(line),
            }
        });
    }

    /// The lines of `INFO section` by name.
    ///
    /// # Panics
    /// If the server cannot be reached.
    #[track_caller]
    pub fn info(&self, section: &str) -> BTreeMap<String, String> {
        info(&self.connect().cmd(&["INFO", section]))
    }

    /// Changes a line of `redis.conf` from the next start on. (`CONFIG SET` changes it now, but each start writes
    /// `redis.conf` again.)
    pub fn set_config(&mut self, name: &str, value: &str) {
        self.setup.set_line(name, value);
    }

    /// Changes an argument of `loadmodule` from the next start on.
    pub fn set_module_arg(&mut self, name: &str, value: &str) {
        self.setup.set_module_arg(name, value);
    }

    /// From the next start on, the server's boot-time clock is so many seconds ahead of the machine's, in a time namespace; `None`: it is not.
    pub fn set_boot_offset(&mut self, seconds: Option<u64>) {
        self.setup.boot_offset = seconds;
    }

    /// Shuts the server down cleanly and starts it in the same folder on the same port.
    ///
    /// # Panics
    /// If either fails.
    #[track_caller]
    pub fn restart(&mut self, how: Shutdown) {
        self.shutdown(how);
        self.start_again();
    }

    /// Shuts the server down cleanly; [`Server::start_again`] brings it back.
    ///
    /// # Panics
    /// If it refuses.
    #[track_caller]
    pub fn shutdown(&mut self, how: Shutdown) {
        let words: &[&str] = match how {
            Shutdown::AsConfigured => &["SHUTDOWN"],
            Shutdown::Save => &["SHUTDOWN", "SAVE"],
            Shutdown::NoSave => &["SHUTDOWN", "NOSAVE"],
        };
        let mut conn = self.connect();
        // A server that shuts down closes the connection instead of answering.
        match conn.try_cmd(words) {
            Err(error) if error.starts_with("connection closed") => self.await_end(),
            refused => panic!("{words:?}: {refused:?}"),
        }
    }

    /// Sends SIGTERM, which the server takes as `SHUTDOWN`, and waits until it has ended.
    ///
    /// # Panics
    /// If it does not end, or not cleanly.
    #[track_caller]
    pub fn terminate(&mut self) {
        self.signal(Signal::TERM);
        self.await_end();
    }

    #[track_caller]
    fn await_end(&mut self) {
        let process = self.process.as_mut().expect("the server runs");
        match process.await_end(valgrind::patience(LIFE_LIMIT)) {
            Some(status) => assert!(status.success(), "the server ended with {status}"),
            None => panic!("the server did not shut down within {LIFE_LIMIT:?}"),
        }
        self.process = None;
    }

    /// Kills the server with SIGKILL, as a power cut would; [`Server::start_again`] brings it back.
    pub fn sigkill(&mut self) {
        self.process = None;
    }

    /// Starts the server again in the same folder, on the same port, after [`Server::shutdown`], [`Server::terminate`]
    /// or [`Server::sigkill`].
    ///
    /// # Panics
    /// If it runs, or does not come up.
    #[track_caller]
    pub fn start_again(&mut self) {
        if let Err(error) = self.try_start_again() {
            panic!("{error}");
        }
    }

    /// Like [`Server::start_again`], for a server that is expected to refuse its files.
    ///
    /// # Panics
    /// If it runs.
    #[track_caller]
    pub fn try_start_again(&mut self) -> Result<(), StartError> {
        assert!(self.process.is_none(), "the server runs already");
        self.bring_up()
    }

    /// Freezes the server with SIGSTOP; when this returns, it has stopped.
    ///
    /// # Panics
    /// While it is down.
    #[track_caller]
    pub fn stop_signal(&self) {
        self.running()
            .stop()
            .expect("a running server can be stopped");
    }

    /// Continues a frozen server with SIGCONT.
    ///
    /// # Panics
    /// While it is down.
    #[track_caller]
    pub fn cont_signal(&self) {
        self.signal(Signal::CONT);
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        self.running()
            .signal(signal)
            .expect("a running server can be signalled");
    }

    /// Valgrind searches for leaks when a process ends.
    fn ask_to_end(&mut self) {
        if let Some(process) = &mut self.process {
            for signal in [Signal::CONT, Signal::TERM] {
                // It may have ended.
                let _ = process.signal(signal);
            }
            process.await_end(valgrind::patience(LIFE_LIMIT));
        }
    }

    #[track_caller]
    fn running(&self) -> &Process {
        self.process.as_ref().expect("the server runs")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended = self.process.as_mut().and_then(Process::ended);
        if self.setup.ends_by_itself() && !thread::panicking() {
            self.ask_to_end();
        }
        self.process = None;
        let log = self.log();
        let misuse = valgrind::findings(self.dir());
        let crash = crash_line(&log).filter(|_| !self.setup.entropy_ends);
        let fault = match (crash, ended) {
            (Some(line), _) => Some(format!("crashed: {line}")),
            _ if misuse.is_some() => misuse.map(|text| format!("misuses memory:\n{text}")),
            (None, Some(status)) if !status.success() => Some(format!("ended with {status}")),
            _ => None,
        };
        if thread::panicking() || fault.is_some() {
            eprintln!(
                "--- log of the server on port {}:\n{}\n---",
                self.port(),
                tail(&log)
            );
        }
        if let Some(fault) = fault
            && !thread::panicking()
        {
            panic!("the server on port {} {fault}", self.port());
        }
    }
}
