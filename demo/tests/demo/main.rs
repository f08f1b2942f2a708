//! The show, as its audience sees it.

#[path = "../../../top/tests/top/terminal.rs"]
mod terminal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mortise_harness::eventually;
use rustix::process::{Pid, Signal, kill_process};

use terminal::Terminal;

const DEMO: &str = env!("CARGO_BIN_EXE_mortise-demo");

#[test]
fn without_a_terminal_the_demo_prints_lines_and_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("demo.svg");
    let out = Command::new(DEMO)
        .args(["--short", "--svg"])
        .arg(&svg)
        .output()
        .unwrap();
    let told = String::from_utf8(out.stdout).unwrap();
    assert!(
        out.status.success(),
        "{told}\n{:?}",
        String::from_utf8(out.stderr)
    );

    // Each ticket once, and each by a larger token than the one before.
    let sales = told.lines().filter_map(|line| line.strip_prefix("ticket "));
    let mut last = (0, 0);
    for sale in sales {
        let words: Vec<&str> = sale.split_whitespace().collect();
        let (ticket, token): (u64, u64) = (words[0].parse().unwrap(), words[2].parse().unwrap());
        assert!(
            ticket == last.0 + 1 && token > last.1,
            "{last:?}, then {sale}"
        );
        last = (ticket, token);
    }
    assert!(last.0 >= 20, "{told}");
    for text in [
        "SIGKILL",
        "SIGSTOP",
        "SIGCONT",
        "LOCK.GUARD refused",
        "Nobody got hurt",
    ] {
        assert!(told.contains(text), "{text}:\n{told}");
    }
    let summary = told.lines().last().unwrap();
    assert!(
        summary.starts_with(&format!("tickets sold: {}, ", last.0)),
        "{summary}"
    );

    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("refused: NOTHELD") && svg.contains("@keyframes film"));
}

#[test]
fn on_a_terminal_the_queue_is_drawn_and_ctrl_c_ends_all_processes() {
    let terminal = Terminal::start(Path::new(DEMO), &[], &[]);
    terminal.await_texts(&[
        "ten processes, one lock",
        "inside",
        "lease",
        "token",
        "waits, is next",
    ]);
    terminal.await_texts(&["ticket   2", "Ten processes want one lock."]);
    let processes = processes_below(terminal.pid());
    assert!(
        processes.len() >= 11,
        "ten clients and a server: {processes:?}"
    );
    leave(terminal, "\x03", &processes);
}

#[test]
fn no_process_is_left_when_the_demo_is_killed() {
    let mut show = Command::new(DEMO).stdout(Stdio::null()).spawn().unwrap();
    let processes = eventually("ten clients and a server run", || {
        let found = processes_below(show.id());
        if found.len() >= 11 {
            Ok(found)
        } else {
            Err(found)
        }
    });
    kill_process(Pid::from_child(&show), Signal::KILL).unwrap();
    show.wait().unwrap();
    await_gone(&processes);
}

fn leave(mut terminal: Terminal, keys: &str, processes: &[u32]) {
    terminal.press(keys);
    assert!(
        !terminal.await_end().success(),
        "it did not come to its end"
    );
    terminal.await_restored();
    await_gone(processes);
}

fn await_gone(processes: &[u32]) {
    eventually("all processes are gone", || {
        let left = processes.iter().filter(|pid| is_running(**pid));
        let left: Vec<&u32> = left.collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
}

/// A process that has ended does not run, even if nobody has waited for it yet.
fn is_running(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state != "Z")
}

/// All children, and theirs.
fn processes_below(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name: PathBuf = entry.ok()?.file_name().into();
        name.to_str()?.parse().ok()
    });
    let children: Vec<u32> = all
        .filter(|child| state_and_parent(*child).is_some_and(|(_, parent)| parent == pid))
        .collect();
    let theirs: Vec<u32> = children.iter().copied().flat_map(processes_below).collect();
    [children, theirs].concat()
}

fn state_and_parent(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The fields after the program's name, which may contain any character.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut words = rest.split(' ');
    Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
}
