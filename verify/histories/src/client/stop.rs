//! When a client ends: after a line on standard input each task makes one last request; and no client outlives its parent process.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Reads standard input: a line starts the last round, the end of input ends the process.
    pub(crate) fn watch_stdin() -> Stop {
        let stop = Stop::default();
        let last_round = stop.clone();
        thread::spawn(move || {
            for line in io::stdin().lines() {
                if line.is_err() {
                    break;
                }
                last_round.0.store(true, Ordering::SeqCst);
            }
            process::exit(1);
        });
        stop
    }

    pub(crate) fn is_last_round(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
