//! Starts a server: writes its configuration, starts its process, and awaits its first reply.

use std::fs;
use std::path::{Path, PathBuf};

use super::{LIFE_LIMIT, Server};
use crate::cluster::SLOTS;
use crate::conn::Conn;
use crate::eventually::within;
use crate::process::Process;
use crate::start_error::StartError;
use crate::valgrind;
use crate::value::info;

impl Server {
    /// Starts the process and waits until it answers.
    pub(super) fn bring_up(&mut self) -> Result<(), StartError> {
        let conf = self.conf_path();
        let conf_text = self.setup.conf(self.dir(), self.port(), self.log.logfile());
        fs::write(&conf, conf_text).expect("the server's folder can be written");
        let command = self.setup.command(self.dir());
        let program = command.join(" ");
        let stdout = self
            .log
            .stdout()
            .expect("the server's folder can be written");
        let stderr = self
            .log
            .stderr()
            .expect("the server's folder can be written");
        let envs = self.setup.envs(self.dir());
        let mut process = Process::start(&command, &conf, self.setup.args(), &envs, stdout, stderr)
            .map_err(|error| self.start_error(format!("{program} cannot be run: {error}")))?;
        let outcome = within(valgrind::patience(LIFE_LIMIT), || match process.ended() {
            Some(status) => Ok(Err(format!("{program} ended at once with {status}"))),
            None => self.answers().map(Ok),
        });
        match outcome {
            Ok(Ok(())) => {
                self.process = Some(process);
                Ok(())
            }
            Ok(Err(reason)) => Err(self.start_error(reason)),
            Err(seen) => {
                process.kill();
                Err(self.start_error(format!("{program} did not come up: {seen}")))
            }
        }
    }

    /// Whether this very server answers and has its data loaded; the error says what was seen instead.
    fn answers(&self) -> Result<(), String> {
        let mut conn = Conn::tcp(self.port()).map_err(|error| error.to_string())?;
        match self.identity(&mut conn) {
            Ok(config_file) if Path::new(&config_file) == self.conf_path() => {
                conn.try_cmd(&["PING"])?;
                if self.setup.owns_all_slots() {
                    serves_all_slots(&mut conn)?;
                }
                Ok(())
            }
            Ok(config_file) => Err(format!("another server on our port, of {config_file}")),
            // A user without rights gets an error; then the log decides.
            Err(error) if error.starts_with("NO") && self.log().contains("Ready to accept") => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The configuration file of the server behind `conn`: another server may have taken the port.
    fn identity(&self, conn: &mut Conn) -> Result<String, String> {
        if let Some(password) = self.setup.password() {
            conn.try_cmd(&["AUTH", password])?;
        }
        let mut lines = info(&conn.try_cmd(&["INFO", "server"])?);
        Ok(lines.remove("config_file").unwrap_or_default())
    }

    fn conf_path(&self) -> PathBuf {
        self.dir().join("redis.conf")
    }

    fn start_error(&self, reason: String) -> StartError {
        StartError {
            reason,
            log: self.log(),
        }
    }
}

/// Makes the node own all slots and serve them; the error says what was seen instead.
fn serves_all_slots(conn: &mut Conn) -> Result<(), String> {
    let state = info(&conn.try_cmd(&["CLUSTER", "INFO"])?);
    if state["cluster_slots_assigned"] == "0" {
        let all = (SLOTS - 1).to_string();
        conn.try_cmd(&["CLUSTER", "ADDSLOTSRANGE", "0", &all])?;
    }
    match &*state["cluster_state"] {
        "ok" => Ok(()),
        other => Err(format!("the cluster's state is {other}")),
    }
}
