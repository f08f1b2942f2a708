//! The commands of `docs/operating.md` and `docs/monitoring.md`: the tests run each of them, in the order of the page, and compare the output
//! with the page.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use mortise_harness::{Conn, Server, cmd, command, queue};

use crate::pages;

/// A line that is typed, and what is shown below it.
#[derive(Debug)]
struct Step {
    typed: String,
    shown: Vec<String>,
}

/// The steps of the blocks of `console`, by the heading under which they stand.
fn steps(page: &str) -> Vec<(String, Vec<Step>)> {
    let mut found: Vec<(String, Vec<Step>)> = Vec::new();
    let (mut heading, mut inside) = (String::new(), false);
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            heading = title.to_owned();
        } else if line.starts_with("```") {
            inside = line == "```console";
        } else if inside {
            if found.last().is_none_or(|(last, _)| *last != heading) {
                found.push((heading.clone(), Vec::new()));
            }
            let (_, steps) = found.last_mut().unwrap();
            match line.strip_prefix("$ ") {
                Some(typed) => steps.push(Step {
                    typed: typed.to_owned(),
                    shown: Vec::new(),
                }),
                None => steps.last_mut().unwrap().shown.push(line.to_owned()),
            }
        }
    }
    found
}

/// The numbers of a line, and what is between them.
fn parted(line: &str) -> (Vec<String>, Vec<String>) {
    let (mut numbers, mut rest) = (Vec::new(), vec![String::new()]);
    let mut digits = String::new();
    for c in line.chars().chain(['\n']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            numbers.push(std::mem::take(&mut digits));
            rest.push(String::new());
        }
        rest.last_mut().unwrap().push(c);
    }
    (numbers, rest)
}

/// Types at a server whose ports, ids and tokens differ from those of the page.
struct Typist {
    server: Server,
    /// For each number on the page, its counterpart here.
    numbers: HashMap<String, String>,
}

impl Typist {
    fn new() -> Typist {
        let server = Server::builder().alone().start();
        let bin = server.dir().join("bin");
        fs::create_dir(&bin).unwrap();
        let port = server.port();
        let cli = bin.join("redis-cli");
        let script = format!("PATH=${{PATH#*:}} exec redis-cli -p {port} $FORMAT \"$@\"");
        fs::write(&cli, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(&cli, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(pages::root().join("tools"), server.dir().join("tools")).unwrap();
        Typist {
            server,
            numbers: HashMap::new(),
        }
    }

    /// Types a line into a shell, with the numbers of this run in place of the page's; returns the output.
    fn type_in(&self, typed: &str) -> String {
        let (numbers, rest) = parted(typed);
        let mut line = rest[0].clone();
        for (number, rest) in numbers.iter().zip(&rest[1..]) {
            line += self.numbers.get(number).unwrap_or(number);
            line += rest;
        }
        let path = std::env::var("PATH").unwrap();
        let bin = self.server.dir().join("bin");
        // On a terminal replies are shown with their types, in a pipe without.
        let format = if typed.contains('|') { "" } else { "--no-raw" };
        let output = Command::new("bash")
            .args(["-c", line.trim_end()])
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("FORMAT", format)
            .current_dir(self.server.dir())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    }

    #[track_caller]
    fn do_step(&mut self, step: &Step) {
        let answered = self.type_in(&step.typed);
        let answered: Vec<&str> = answered
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty())
            .collect();
        let alike = answered.len() == step.shown.len();
        for (answered, shown) in answered.iter().zip(&step.shown) {
            let (here, rest) = parted(answered);
            let (there, shown_rest) = parted(shown);
            assert_eq!(
                rest, shown_rest,
                "{}\nanswered {answered:?}\nshown {shown:?}",
                step.typed
            );
            // Small numbers are counts, and have to be equal.
            for (here, there) in here.into_iter().zip(there) {
                if there.len() >= 4 {
                    self.numbers.insert(there, here);
                }
            }
        }
        assert!(
            alike,
            "{}\nanswered {answered:#?}\nshown {:#?}",
            step.typed, step.shown
        );
    }
}

/// The state of the server before a section begins: the connections of the waiters.
fn scene(server: &Server, heading: &str) -> Vec<Conn> {
    let mut conn = server.connect();
    match heading {
        "Everybody waits for this lock" => {
            let mut holder = server.connect();
            cmd!(holder, "CLIENT", "SETNAME", "billing");
            cmd!(holder, "LOCK.ACQUIRE", "orders:42", "billing-7", 600_000);
            let mut waiting = vec![holder];
            for n in 1..=3 {
                let mut web = server.connect();
                cmd!(web, "CLIENT", "SETNAME", format!("web-{n}"));
                web.submit(&command!("LOCK.ACQUIRE orders:42 web-{n} 30000 WAIT 60000"));
                server.await_blocked(&web);
                waiting.push(web);
            }
            queue!(conn, "a box", "LOCK.ACQUIRE orders:42 report-9 30000");
            waiting
        }
        _ => Vec::new(),
    }
}

/// Types all lines of a page, of which there are at least `least`.
fn type_page(page: &str, least: usize) {
    let page = pages::read(page);
    let sections = steps(&page);
    let count: usize = sections.iter().map(|(_, steps)| steps.len()).sum();
    assert!(count >= least, "{sections:#?}");
    let mut typist = Typist::new();
    for (heading, steps) in sections {
        let waiting = scene(&typist.server, &heading);
        for step in steps {
            typist.do_step(&step);
        }
        drop(waiting);
        cmd!(typist.server.connect(), "FLUSHALL");
    }
    // Names the blocks that this test does not run by their kind.
    for block in page.split("```").skip(1).step_by(2) {
        let kind = block.lines().next().unwrap();
        let known = ["console", "text", "acl"];
        assert!(known.contains(&kind), "a block of {kind:?}");
    }
}

#[test]
fn the_page_on_operating_shows_what_its_commands_reply() {
    type_page("docs/operating.md", 12);
}

#[test]
fn the_page_on_monitoring_shows_what_its_commands_reply() {
    type_page("docs/monitoring.md", 3);
}
