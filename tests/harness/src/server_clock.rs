//! Steps the clocks that a server sees, and boots the machine that it believes to be on.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::clock_shim::{ClockStep, boot_file, envs, offset_file, write_new_id};
use crate::eventually;
use crate::server::Server;

impl Server {
    /// Steps the wall clock that this server sees; a later step adds to it, and a restart changes nothing about it.
    ///
    /// # Panics
    /// If the server was started without [`Builder::clock_shim`](crate::Builder::clock_shim).
    #[track_caller]
    pub fn step_clock(&self, step: ClockStep) {
        let file = self.clock_file();
        write(&file, 0, read(&file, 0) + step.micros());
    }

    /// The same, but in the middle of the module's next work of its own, and waits for that. Send
    /// the server nothing meanwhile.
    ///
    /// # Panics
    /// If the server was started without [`Builder::clock_shim`](crate::Builder::clock_shim), or its module does nothing.
    #[track_caller]
    pub fn step_clock_within_timer(&self, step: ClockStep) {
        let file = self.clock_file();
        write(&file, 8, step.micros());
        eventually("the clock has stepped", || read(&file, 8) == 0);
    }

    /// Suspends the machine that this server sees for this long: its boot-time clock continues, and its other monotonic clocks stop.
    /// (The wall clock is stepped separately.)
    ///
    /// # Panics
    /// If the server was started without [`Builder::clock_shim`](crate::Builder::clock_shim).
    #[track_caller]
    pub fn suspend(&self, time: Duration) {
        let file = self.clock_file();
        write(
            &file,
            16,
            read(&file, 16) + ClockStep::Forward(time).micros(),
        );
    }

    #[track_caller]
    fn clock_file(&self) -> File {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(offset_file(self.dir()));
        file.expect("a server with a clock shim")
    }

    /// The environment of another program that is to see this server's wall clock, as it is stepped.
    ///
    /// # Panics
    /// If the shim cannot be compiled.
    pub fn clock_envs(&self) -> [(String, String); 2] {
        envs(self.dir(), ClockStep::Forward(Duration::ZERO))
    }

    /// Boots the machine of its own that this server is on; the server itself must not run.
    ///
    /// # Panics
    /// If the server was started without [`Builder::on_another_machine`](crate::Builder::on_another_machine).
    pub fn reboot_machine(&self) {
        let file = boot_file(self.dir());
        assert!(file.exists(), "a server on a machine of its own");
        write_new_id(&file);
    }

    /// The machine of its own that this server is on has no id from the server's next start on.
    ///
    /// # Panics
    /// If the server's folder cannot be written.
    pub fn forget_machine(&self) {
        fs::write(self.dir().join("machine-id"), "").expect("the server's folder can be written");
    }
}

fn read(file: &File, at: u64) -> i64 {
    let mut micros = [0; 8];
    file.read_exact_at(&mut micros, at)
        .expect("the clock can be read");
    i64::from_ne_bytes(micros)
}

/// In place: the server has this very file mapped.
fn write(file: &File, at: u64, micros: i64) {
    file.write_all_at(&micros.to_ne_bytes(), at)
        .expect("the clock can be written");
}
