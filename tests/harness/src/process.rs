//! The server as a process: started so that it cannot outlive the test, and signalled.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

/// A running server process, in a process group of its own, so that a wrapper script's children hear signals too.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `program`, with what stands before the configuration file, and the arguments; its output goes to the files.
    pub(crate) fn start(
        program: &[String],
        config: &Path,
        args: &[&str],
        envs: &[(String, String)],
        stdout: File,
        stderr: File,
    ) -> io::Result<Process> {
        // setpriv replaces itself by the server, so the child's id is the server's.
        let mut command = match setpriv() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL"]);
                command.args(program);
                command
            }
            false => {
                let mut command = Command::new(&program[0]);
                command.args(&program[1..]);
                command
            }
        };
        command
            .arg(config)
            .args(args)
            .envs(envs.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .process_group(0);
        spawn(command).map(|child| Process { child })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the server and its children.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process_group(Pid::from_child(&self.child), signal)?)
    }

    /// Stops the server and its children with SIGSTOP; the server has stopped when this returns.
    pub(crate) fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        await_stop(&self.child)
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits until it has ended by itself, for up to `patience`.
    pub(crate) fn await_end(&mut self, patience: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            match self.ended() {
                None if start.elapsed() < patience => thread::sleep(Duration::from_millis(1)),
                ended => return ended,
            }
        }
    }

    /// SIGKILL, and waits until the system has taken the process away.
    pub(crate) fn kill(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::KILL)
                .expect("a child that runs can be killed");
            self.child.wait().expect("a child can be waited for");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Stops a child with SIGSTOP; none of its threads runs any more when this returns.
///
/// # Panics
/// If it has ended.
#[track_caller]
pub fn stop_process(child: &Child) {
    kill_process(Pid::from_child(child), Signal::STOP)
        .map_err(io::Error::from)
        .and_then(|()| await_stop(child))
        .expect("a child that runs can be stopped");
}

/// The signal reaches one thread, which stops the others when it runs. On a busy machine they run for some milliseconds more.
fn await_stop(child: &Child) -> io::Result<()> {
    // This also finds a child that is already stopped.
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(child)), options)?;
    Ok(())
}

/// Whether util-linux's setpriv is here: it asks the system to kill the server should the test process die.
fn setpriv() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    *PRESENT.get_or_init(|| {
        let trial = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        trial.is_ok_and(|status| status.success())
    })
}

type Order = (Command, Sender<io::Result<Child>>);

/// Starts a process from a thread that lives as long as this process does.
///
/// The parent-death signal is sent when the *thread* that started the child ends, and each test runs in its own thread.
fn spawn(command: Command) -> io::Result<Child> {
    static ORDERS: OnceLock<Sender<Order>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (orders, inbox): (_, Receiver<Order>) = channel();
        thread::Builder::new()
            .name("server-parent".to_owned())
            .spawn(move || {
                for (mut command, reply) in inbox {
                    // The caller waits for the reply, so it is still there.
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("a thread can be started");
        orders
    });
    let (reply, result) = channel();
    orders
        .send((command, reply))
        .expect("the thread that starts servers never ends");
    result
        .recv()
        .expect("the thread that starts servers answers each order")
}
