//! What is typed in the guides, from top to bottom, answers what they show.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use mortise_harness::{Server, eventually};

const PROMPT: &str = "127.0.0.1:6379> ";

/// What is typed, and what is shown below it: nothing for a request that waits.
fn examples(guide: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(guide)).unwrap();
    let blocks = text.split("```").skip(1).step_by(2);
    let typed = blocks.flat_map(|block| block.split(PROMPT).skip(1));
    typed
        .map(|example| {
            let (command, shown) = example.split_once('\n').unwrap();
            (command.to_owned(), shown.trim_end().to_owned())
        })
        .collect()
}

/// Times, tokens and ids of clients become `N`.
fn without_numbers(shown: &str) -> String {
    const CHANGING: [&str; 7] = ["age", "lease", "held", "client", "waited", "left", "oldest"];
    let mut named = "";
    let lines = shown.lines().map(|line| {
        let number = line.rsplit_once("(integer) ").filter(|(_, number)| {
            let changes = CHANGING.contains(&named);
            (changes || number.len() > 12) && number.parse::<u64>().is_ok()
        });
        named = line.split('"').nth(1).unwrap_or_default();
        match number {
            Some((before, _)) => format!("{before}(integer) N"),
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Somebody who types, at a server where tokens are others than in the guide.
struct Typist {
    server: Server,
    /// What a token shown in the guide is here.
    tokens: HashMap<String, String>,
}

impl Typist {
    fn new() -> Typist {
        Typist {
            server: Server::start(),
            tokens: HashMap::new(),
        }
    }

    /// A `redis-cli` that shows replies as it does on a terminal.
    fn type_in(&self, command: &str) -> Child {
        let words = command.split(' ');
        Command::new("redis-cli")
            .args(["-u", &self.server.url(), "--no-raw"])
            .args(words.map(|word| self.tokens.get(word).map_or(word, String::as_str)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn assert_shows(&mut self, child: Child, command: &str, shown: &str) {
        let answered = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let answered = answered.trim_end();
        assert_eq!(
            without_numbers(answered),
            without_numbers(shown),
            "{command}"
        );
        if let (Some(shown), Some(here)) = (token(shown), token(answered)) {
            self.tokens.insert(shown.to_owned(), here.to_owned());
        }
    }
}

/// A reply that is a token and nothing else.
fn token(shown: &str) -> Option<&str> {
    let number = shown.strip_prefix("(integer) ")?;
    (number.len() > 12).then_some(number)
}

#[test]
fn the_examples_typed_from_top_to_bottom_answer_what_is_shown() {
    let mut typist = Typist::new();
    let mut waiting: Vec<(String, Child, String)> = Vec::new();
    let examples = examples("README.md");
    assert!(examples.len() > 15, "{examples:?}");
    for (command, shown) in examples {
        let child = typist.type_in(&command);
        if command.contains(" WAIT ") {
            let waiters = waiting.len() as i64 + 1;
            eventually("it waits", || typist.server.gauge("waiters") == waiters);
            waiting.push((command, child, shown));
            continue;
        }
        typist.assert_shows(child, &command, &shown);
        // Whom that let in is shown above.
        let still = usize::try_from(typist.server.gauge("waiters")).unwrap();
        for (command, child, shown) in waiting.drain(..waiting.len() - still) {
            typist.assert_shows(child, &command, &shown);
        }
    }
    for (command, mut child, shown) in waiting {
        assert_eq!(shown, "", "{command} waits");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn what_is_typed_in_the_guides_answers_what_is_shown() {
    for guide in ["docs/commands.md", "docs/guarantees.md", "docs/mail.md"] {
        let mut typist = Typist::new();
        let examples = examples(guide);
        assert!(examples.len() >= 5, "{guide}: {examples:?}");
        for (command, shown) in examples {
            let child = typist.type_in(&command);
            typist.assert_shows(child, &command, &shown);
        }
    }
}
