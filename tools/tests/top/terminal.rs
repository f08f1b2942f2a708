//! A program in a terminal of its own: the test sends keys, and reads the screen as a person sees it.

#![allow(dead_code, reason = "two test programs use it, neither all of it")]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use mortise_harness::eventually;
use pty_process::Size;
use pty_process::blocking::{Command, Pty};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};

/// A program, and its terminal. It is killed when this goes.
pub(crate) struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    shown: Arc<Mutex<Shown>>,
}

/// What the program has written.
struct Shown {
    raw: Vec<u8>,
    screen: vt100::Parser,
}

impl Terminal {
    /// A terminal of 100 columns and 24 lines.
    pub(crate) fn start(program: &Path, args: &[&str], envs: &[(&str, &str)]) -> Terminal {
        let (columns, lines) = (100, 24);
        let (pty, pts) = pty_process::blocking::open().unwrap();
        pty.resize(Size::new(lines, columns)).unwrap();
        let child = Command::new(program)
            .args(args)
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .env_remove("REDISCLI_AUTH")
            .envs(envs.iter().copied())
            .spawn(pts)
            .unwrap();
        let shown = Shown {
            raw: Vec::new(),
            screen: vt100::Parser::new(lines, columns, 0),
        };
        let terminal = Terminal {
            pty: Arc::new(pty),
            child,
            shown: Arc::new(Mutex::new(shown)),
        };
        let (pty, shown) = (Arc::clone(&terminal.pty), Arc::clone(&terminal.shown));
        thread::spawn(move || follow(&pty, &shown));
        terminal
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap()
    }

    /// The visible lines.
    pub(crate) fn screen(&self) -> String {
        self.shown().screen.screen().contents()
    }

    /// Everything the program has written.
    pub(crate) fn raw(&self) -> Vec<u8> {
        self.shown().raw.clone()
    }

    /// Waits until the screen has what is asked for.
    #[track_caller]
    pub(crate) fn await_screen(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        eventually(what, || {
            let screen = self.screen();
            if holds(&screen) {
                Ok(screen)
            } else {
                Err(Seen(screen))
            }
        })
    }

    /// Waits until the screen has all these texts.
    #[track_caller]
    pub(crate) fn await_texts(&self, texts: &[&str]) -> String {
        let what = format!("the screen has {texts:?}");
        self.await_screen(&what, |screen| {
            texts.iter().all(|text| screen.contains(text))
        })
    }

    /// Waits until a line of the screen has all these texts.
    #[track_caller]
    pub(crate) fn await_line(&self, texts: &[&str]) -> String {
        let what = format!("a line of the screen has {texts:?}");
        self.await_screen(&what, |screen| line_with(screen, texts).is_some())
    }

    pub(crate) fn press(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        // The screen first: what is drawn in the new size must find it there.
        self.shown().screen.screen_mut().set_size(lines, columns);
        self.pty.resize(Size::new(lines, columns)).unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the program has ended, and all it wrote has been read.
    #[track_caller]
    pub(crate) fn await_end(&mut self) -> ExitStatus {
        eventually("the program ends", || self.child.try_wait().unwrap())
    }

    /// The terminal is as a shell needs it: keys are echoed and lines edited, the cursor is to be seen, and what was on the
    /// screen before is on it again.
    #[track_caller]
    pub(crate) fn await_restored(&self) {
        eventually("the terminal is restored", || {
            let modes = tcgetattr(&*self.pty).unwrap().local_modes;
            let cooked = modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
            let shown = self.shown();
            let screen = shown.screen.screen();
            let seen = (cooked, screen.alternate_screen(), screen.hide_cursor());
            if seen == (true, false, false) {
                Ok(())
            } else {
                Err(seen)
            }
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads until the program has closed its end.
fn follow(pty: &Pty, shown: &Mutex<Shown>) {
    let mut bytes = [0; 4096];
    let mut pty = pty;
    while let Ok(read @ 1..) = pty.read(&mut bytes) {
        let mut shown = shown.lock().unwrap();
        shown.raw.extend_from_slice(&bytes[..read]);
        shown.screen.process(&bytes[..read]);
    }
}

/// The first line with all these texts, in this order.
pub(crate) fn line_with<'a>(screen: &'a str, texts: &[&str]) -> Option<&'a str> {
    screen.lines().find(|line| {
        let mut rest = *line;
        texts.iter().all(|text| match rest.split_once(text) {
            Some((_, after)) => {
                rest = after;
                true
            }
            None => false,
        })
    })
}

/// A screen that is printed as it looks.
struct Seen(String);

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n{}\n", self.0)
    }
}
