//! However it ends, it restores the terminal.

use std::env;
use std::io::{self, Read};
use std::path::Path;

use mortise_harness::{Server, eventually};
use mortise_top::live;
use pty_process::blocking::Command;
use rustix::process::Signal;

use crate::terminal::Terminal;
use crate::{TOP, top};

#[test]
fn q_and_ctrl_c_end_the_program_and_restore_the_terminal() {
    let server = Server::start();
    for key in ["q", "\x03", "/\x03", "b\x03"] {
        let mut terminal = top(&[&server.url()]);
        terminal.await_texts(&["Nobody waits for a lock."]);
        terminal.press(key);
        assert!(terminal.await_end().success());
        terminal.await_restored();
    }
}

#[test]
fn a_signal_ends_the_program_and_restores_the_terminal() {
    let server = Server::start();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut terminal = top(&[&server.url()]);
        terminal.await_texts(&["Nobody waits for a lock."]);
        terminal.signal(signal);
        terminal.await_end();
        terminal.await_restored();
    }
}

#[test]
fn a_closed_terminal_ends_the_program() {
    let server = Server::start();
    let (pty, pts) = pty_process::blocking::open().unwrap();
    let program = Command::new(TOP).args([server.url()]);
    let mut child = program.spawn(pts).unwrap();
    // It has begun to draw.
    (&pty).read_exact(&mut [0]).unwrap();
    drop(pty);
    eventually("it ends", || child.try_wait().unwrap());
}

#[test]
fn a_panic_in_any_thread_restores_the_terminal_and_is_reported() {
    // This very program again, on a terminal: the test below.
    let program = env::current_exe().unwrap();
    let args = [
        "--ignored",
        "--exact",
        "leaving::panics_on_a_terminal",
        "--nocapture",
    ];
    let mut terminal = Terminal::start(Path::new(&program), &args, &[]);
    assert_eq!(terminal.await_end().code(), Some(101));
    terminal.await_restored();
    terminal.await_texts(&["something went wrong"]);
}

#[test]
#[ignore = "for the test above, which gives it a terminal"]
fn panics_on_a_terminal() {
    let ended = live::with_terminal(|_| {
        let thread = std::thread::spawn(|| panic!("something went wrong"));
        let _ = thread.join();
        io::Result::Ok(())
    });
    panic!("it went on: {ended:?}");
}
