//! The server's cost of a load, by its own statistics.

use std::time::Duration;

use mortise_harness::{Conn, Server, cmd, info};

/// Reads the server's statistics on its own connection.
#[derive(Debug)]
pub(crate) struct Meter(Conn);

/// The cost of a load.
#[derive(Debug)]
pub(crate) struct Cost {
    /// Microseconds spent in each of the named commands, all calls together.
    ///
    /// Each call counts in whole microseconds of a running clock: single calls are off by up to one, sums are not.
    pub(crate) usec: Vec<f64>,
    /// Microseconds of processor time of the server's main thread, with the network.
    pub(crate) cpu: f64,
    /// Wall-clock time of the load.
    pub(crate) elapsed: Duration,
}

impl Meter {
    pub(crate) fn on(server: &Server) -> Meter {
        Meter(server.connect())
    }

    /// Runs `load` and returns its cost; `commands` as INFO commandstats names them.
    ///
    /// A script's calls count within EVALSHA, and once more under their own names: name only what clients send.
    pub(crate) fn cost(&mut self, commands: &[&str], load: impl FnOnce() -> Duration) -> Cost {
        let (usec_before, cpu_before) = (self.usec(commands), self.cpu());
        let elapsed = load();
        let (usec, cpu) = (self.usec(commands), self.cpu());
        let unheard_of = usec.iter().position(|usec| *usec == 0.0);
        assert!(
            unheard_of.is_none(),
            "INFO commandstats does not know all of {commands:?}"
        );
        Cost {
            usec: usec.iter().zip(usec_before).map(|(b, a)| b - a).collect(),
            cpu: cpu - cpu_before,
            elapsed,
        }
    }

    fn usec(&mut self, commands: &[&str]) -> Vec<f64> {
        let stats = info(&cmd!(self.0, "INFO", "commandstats"));
        let usec = |command: &&str| {
            let Some(line) = stats.get(&format!("cmdstat_{command}")) else {
                return 0.0;
            };
            let field = line
                .split(',')
                .find_map(|field| field.strip_prefix("usec="))
                .expect("commandstats tell usec");
            field.parse().expect("a number")
        };
        commands.iter().map(usec).collect()
    }

    /// Microseconds of processor time of the server's main thread so far.
    pub(crate) fn cpu(&mut self) -> f64 {
        let lines = info(&cmd!(self.0, "INFO", "cpu"));
        let seconds = |name: &str| -> f64 { lines[name].parse().expect("a number of seconds") };
        1e6 * (seconds("used_cpu_user_main_thread") + seconds("used_cpu_sys_main_thread"))
    }
}
