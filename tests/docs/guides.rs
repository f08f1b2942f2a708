//! What the guides say is true: every test and every file that they name is there, and the README's examples, typed from
//! top to bottom, answer what they show.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use mortise_harness::{Server, eventually};

const GUIDES: [&str; 6] = [
    "README.md",
    "client/README.md",
    "docs/commands.md",
    "docs/guarantees.md",
    "docs/design.md",
    "docs/numbers.md",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What stands between backticks, code blocks left out.
fn code_words(guide: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(guide)).unwrap();
    let prose: Vec<&str> = text.split("```").step_by(2).collect();
    prose
        .iter()
        .flat_map(|part| part.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

/// All files of Rust below `dir`.
fn sources(dir: PathBuf, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_test_that_a_guide_names_is_there() {
    let mut files = Vec::new();
    for dir in ["tests", "client", "core"] {
        sources(root().join(dir), &mut files);
    }
    let code: String = files
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let mut names = 0;
    for guide in GUIDES {
        for word in code_words(guide) {
            let is_path = ["tests/", "client/", "core/", "src/", "docs/", "scripts/"]
                .iter()
                .any(|dir| word.starts_with(dir));
            // The names of tests are sentences.
            let is_test = word.matches('_').count() >= 4
                && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            if is_path && !word.contains([' ', '*', '{']) {
                assert!(root().join(&word).exists(), "{guide} names {word}");
                names += 1;
            } else if is_test {
                assert!(
                    code.contains(&format!("fn {word}(")),
                    "{guide} names {word}"
                );
                names += 1;
            }
        }
    }
    assert!(names > 20, "only {names} found");
}

const PROMPT: &str = "127.0.0.1:6379> ";

/// What is typed, and what is shown below it: nothing for a request that waits.
fn examples(guide: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(root().join(guide)).unwrap();
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
    const CHANGING: [&str; 6] = ["lease", "held", "client", "waited", "left", "oldest"];
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

/// A `redis-cli` that shows replies as it does on a terminal.
fn type_in(server: &Server, command: &str) -> Child {
    Command::new("redis-cli")
        .args(["-u", &server.url(), "--no-raw"])
        .args(command.split(' '))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn output(child: Child) -> String {
    let shown = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    without_numbers(shown.trim_end())
}

#[test]
fn the_examples_typed_from_top_to_bottom_answer_what_is_shown() {
    let server = Server::start();
    let mut waiting: Vec<(String, Child, String)> = Vec::new();
    let examples = examples("README.md");
    assert!(examples.len() > 15, "{examples:?}");
    for (command, shown) in examples {
        let child = type_in(&server, &command);
        if command.contains(" WAIT ") {
            let waiters = waiting.len() as i64 + 1;
            eventually("it waits", || server.gauge("waiters") == waiters);
            waiting.push((command, child, shown));
            continue;
        }
        assert_eq!(output(child), without_numbers(&shown), "{command}");
        // Whom that let in is shown above.
        let still = usize::try_from(server.gauge("waiters")).unwrap();
        for (command, child, shown) in waiting.drain(..waiting.len() - still) {
            assert_eq!(output(child), without_numbers(&shown), "{command}");
        }
    }
    for (command, mut child, shown) in waiting {
        assert_eq!(shown, "", "{command} waits");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
