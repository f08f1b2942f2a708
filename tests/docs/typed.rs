//! The commands on the pages, typed from top to bottom, reply what the pages show.

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};

use mortise_harness::{Server, eventually};

use crate::pages;

pub(crate) const PROMPT: &str = "127.0.0.1:6379> ";

/// A typed command and the output below it, which is empty for a request that waits.
struct Example {
    typed: String,
    shown: String,
}

/// The terminals of a page, one block each.
fn terminals(page: &str) -> Vec<Vec<Example>> {
    let blocks = pages::blocks(page).into_iter();
    let typed = blocks.filter(|block| block.text.starts_with(PROMPT));
    typed
        .map(|block| {
            let examples = block.text.split(PROMPT).skip(1);
            examples
                .map(|example| {
                    let (typed, shown) = example.split_once('\n').unwrap();
                    Example {
                        typed: typed.to_owned(),
                        shown: shown.trim_end().to_owned(),
                    }
                })
                .collect()
        })
        .collect()
}

/// Times, tokens and ids of clients become `N`.
fn without_numbers(typed: &str, shown: &str) -> String {
    const CHANGING: [&str; 7] = ["age", "lease", "held", "client", "waited", "left", "oldest"];
    let mut named = "";
    let mut is_mail = false;
    // It replies what is left of a lease.
    let is_time = typed.starts_with("LOCK.REVOKE ");
    let lines = shown.lines().map(|line| {
        let number = line.rsplit_once("(integer) ").filter(|(_, number)| {
            // A box's `since` comes first, and how long LOCK.MAIL has waited second.
            let waited = is_mail && line.starts_with("2) ");
            let changes = CHANGING.contains(&named) || waited || is_time;
            (changes || number.len() > 12) && number.parse::<u64>().is_ok()
        });
        is_mail = line.starts_with("1) (integer) ");
        named = line.split('"').nth(1).unwrap_or_default();
        match number {
            Some((before, _)) => format!("{before}(integer) N"),
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The large numbers of a reply: tokens, numbers of letters, boxes' `since`.
fn large_numbers(shown: &str) -> Vec<&str> {
    let numbers = shown
        .lines()
        .filter_map(|line| Some(line.rsplit_once("(integer) ")?.1));
    numbers.filter(|number| number.len() > 12).collect()
}

/// A request that has no reply yet.
struct Pending<'p> {
    example: &'p Example,
    child: Child,
}

impl Pending<'_> {
    fn shows_a_word_of(&self, next: &Example) -> bool {
        let numbers = large_numbers(&self.example.shown);
        next.typed.split(' ').any(|word| numbers.contains(&word))
    }
}

/// Types at a server whose tokens differ from those on the page.
struct Typist {
    server: Server,
    /// For each large number on the page, its counterpart here.
    numbers: HashMap<String, String>,
}

impl Typist {
    fn new() -> Typist {
        Typist {
            server: Server::start(),
            numbers: HashMap::new(),
        }
    }

    fn blocked_clients(&self) -> usize {
        self.server.info("clients")["blocked_clients"]
            .parse()
            .unwrap()
    }

    /// Types into a `redis-cli` that prints as on a terminal, until it has a reply or waits.
    fn start<'p>(&self, example: &'p Example) -> Pending<'p> {
        let before = self.blocked_clients();
        let words = example.typed.split(' ');
        let mut child = Command::new("redis-cli")
            .args(["-u", &self.server.url(), "--no-raw"])
            .args(words.map(|word| self.numbers.get(word).map_or(word, String::as_str)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        eventually(&format!("{} is answered or waits", example.typed), || {
            child.try_wait().unwrap().is_some() || self.blocked_clients() > before
        });
        Pending { example, child }
    }

    fn assert_shows(&mut self, page: &str, pending: Pending<'_>) {
        let Pending { example, child } = pending;
        let Example { typed, shown } = example;
        let answered = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let answered = answered.trim_end();
        assert_eq!(
            without_numbers(typed, answered),
            without_numbers(typed, shown),
            "{page}: {typed}"
        );
        for (shown, here) in large_numbers(shown)
            .into_iter()
            .zip(large_numbers(answered))
        {
            self.numbers.insert(shown.to_owned(), here.to_owned());
        }
    }

    /// Types what a page shows. Each block is a terminal, which types nothing more until a waiting command has its reply.
    fn type_page(&mut self, page: &str, terminals: &[Vec<Example>]) {
        let mut waiting: Vec<Pending<'_>> = Vec::new();
        for terminal in terminals {
            let mut here: Option<Pending<'_>> = None;
            for example in terminal {
                if let Some(pending) = here.take() {
                    self.assert_shows(page, pending);
                }
                // A typed token was shown before.
                for pending in waiting.extract_if(.., |pending| pending.shows_a_word_of(example)) {
                    self.assert_shows(page, pending);
                }
                here = Some(self.start(example));
            }
            let mut last = here.expect("a block with a prompt has a command");
            match last.child.try_wait().unwrap() {
                Some(_) => self.assert_shows(page, last),
                None => waiting.push(last),
            }
        }
        for mut pending in waiting {
            if pending.example.shown.is_empty() {
                let ended = pending.child.try_wait().unwrap();
                assert_eq!(ended, None, "{page}: {} waits", pending.example.typed);
                pending.child.kill().unwrap();
                pending.child.wait().unwrap();
            } else {
                self.assert_shows(page, pending);
            }
        }
    }
}

#[test]
fn commands_typed_from_top_to_bottom_of_a_page_give_the_replies_it_shows() {
    let mut typed = 0;
    // One server for all pages, as a reader has.
    let mut typist = Typist::new();
    for page in pages::all() {
        let terminals = terminals(&page);
        if !terminals.is_empty() {
            typist.type_page(&page, &terminals);
            typed += terminals.iter().map(Vec::len).sum::<usize>();
        }
    }
    assert!(typed > 60, "only {typed}");
}

#[test]
fn every_command_has_an_example_on_its_page() {
    for page in pages::files("docs/commands", "md") {
        let title = pages::read(&page).lines().next().unwrap().to_owned();
        let terminals = terminals(&page);
        let typed = terminals.iter().flatten();
        let commands: Vec<&str> = typed
            .map(|example| example.typed.split(' ').next().unwrap())
            .collect();
        for command in title.trim_start_matches("# ").split(", ") {
            assert!(commands.contains(&command), "{page} shows no {command}");
        }
    }
}
