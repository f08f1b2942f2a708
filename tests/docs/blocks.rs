//! Every block of code in the documentation is run by a test, or has a reason here why not.

use std::path::Path;

use crate::pages::{self, Block};
use crate::typed::PROMPT;

/// The tests that run the blocks of a language, on the pages that the tests name.
const RUNNERS: [(&str, &str); 14] = [
    (
        "python",
        "tests/docs/python.rs helpers/python/tests/test_guides.py helpers/python/tests/test_frameworks.py",
    ),
    ("ruby", "helpers/ruby/test/readme_test.rb"),
    (
        "js",
        "helpers/node/test/examples.test.js helpers/node/test/frameworks.test.js",
    ),
    (
        "ts",
        "helpers/node/test/examples.test.js helpers/node/test/frameworks.test.js",
    ),
    ("go", "helpers/go/readme_test.go benches/peers/pages"),
    (
        "java",
        "helpers/java/src/test/java/mortise/ReadmeTest.java helpers/java/src/test/java/mortise/ShedLockTest.java benches/peers/pages",
    ),
    ("xml", "helpers/java/src/test/java/mortise/ReadmeTest.java"),
    (
        "php",
        "helpers/php/tests/ReadmeTest.php helpers/php/tests/PagesTest.php",
    ),
    ("yaml", "helpers/php/tests/PagesTest.php"),
    ("acl", "tests/docs/security.rs tools/tests/alerts/script.rs"),
    ("sql", "tests/failover/fencing.rs"),
    ("lua", "tests/failover/fencing.rs"),
    ("rust", "tests/docs/worked.rs"),
    ("rust,no_run", "client/src/lib.rs"),
];

/// Pages with a test of their own, which runs all shell commands there.
const READERS: [(&str, &str); 6] = [
    ("docs/install.md", "tests/install/page.rs"),
    ("docs/operating.md", "tests/docs/operating.rs"),
    ("docs/monitoring.md", "tests/docs/operating.rs"),
    ("docs/top.md", "tools/tests/top/docs.rs"),
    ("helpers/go/README.md", "helpers/go/readme_test.go"),
    (
        "helpers/java/README.md",
        "helpers/java/src/test/java/mortise/ReadmeTest.java",
    ),
];

/// Blocks that no test runs, by page and language, and why.
const NOT_RUN: [(&str, &str, &str); 1] = [(
    "client/README.md",
    "toml",
    "the path in it is the reader's own",
)];

/// Shell lines that do not begin with `make` or `scripts/`, and why no test here runs them.
const IN_A_SHELL: [(&str, &str); 14] = [
    ("git clone ", "the reader has a repository to clone"),
    (
        "git apply ",
        "the source of the tests is not theirs to change",
    ),
    ("cargo build ", "what every test needs has been built so"),
    ("cargo test ", "this is one"),
    (
        "MORTISE_SERVER=",
        "the words after it are checked like all others",
    ),
    ("python3 -m venv ", "helpers/python/interop does"),
    (". venv/bin/activate", "helpers/python/interop does"),
    (
        "pip install ./helpers/python",
        "helpers/python/interop does",
    ),
    ("gem build ", "helpers/ruby/interop does"),
    ("gem install --local ", "helpers/ruby/interop does"),
    ("npm install ", "helpers/node/interop does"),
    ("composer ", "helpers/php/tests/ReadmeTest.php does"),
    ("npx tsc ", "helpers/node/test/examples.test.js does"),
    ("node stock.mjs", "helpers/node/test/examples.test.js does"),
];

fn is_run(page: &str, block: &Block) -> Result<(), String> {
    let language = block.language.as_str();
    let told = |(at, of, _): &(&str, &str, &str)| *at == page && *of == language;
    if NOT_RUN.iter().any(told) {
        return Ok(());
    }
    if let Some((_, reader)) = READERS.iter().find(|(read, _)| *read == page)
        && ["sh", "console", "text", ""].contains(&language)
    {
        return by_a_runner(page, reader);
    }
    match language {
        // Typed by `typed`.
        "" if block.text.starts_with(PROMPT) => Ok(()),
        "" => Err("is neither typed nor has it a language: is it text?".to_owned()),
        "text" if block.text.contains(PROMPT) => Err("is typed, but said to be text".to_owned()),
        "text" => Ok(()),
        "sh" => in_a_shell(&block.text),
        _ => match RUNNERS.iter().find(|(known, _)| *known == language) {
            Some((_, runners)) => by_a_runner(page, runners),
            None => Err("has a language that nobody runs".to_owned()),
        },
    }
}

fn by_a_runner(page: &str, runners: &str) -> Result<(), String> {
    // A helper's own test reads the helper's README.
    let name = Path::new(page).file_stem().unwrap().to_str().unwrap();
    let mut texts = runners.split(' ').map(pages::read);
    if texts.any(|runner| runner.contains(name)) {
        Ok(())
    } else {
        Err(format!("is read by none of {runners}"))
    }
}

/// Checks that each line is an existing target or script.
fn in_a_shell(lines: &str) -> Result<(), String> {
    let commands = lines.lines().flat_map(|line| line.split(" && "));
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        for (number, word) in words.iter().enumerate() {
            let script = word.trim_start_matches("MORTISE_SERVER=$(");
            let is_script = script.split('/').nth_back(1) == Some("scripts");
            if is_script && !pages::root().join(script).exists() {
                return Err(format!("there is no {script}"));
            }
            let is_make = *word == "make" && number <= 1;
            let rest = words[number + 1..].iter().copied();
            let rest = rest.take_while(|word| *word != "#");
            if is_make && !pages::is_target(rest) {
                return Err(format!("there is no target: {command}"));
            }
        }
        let known = [
            "make",
            "scripts/",
            "verify/scripts/",
            "cd ",
            "export ",
            "redis-cli",
            "sudo ",
        ];
        let is_known = known.iter().any(|start| command.starts_with(start))
            || IN_A_SHELL
                .iter()
                .any(|(start, _)| command.starts_with(start));
        if !is_known {
            return Err(format!("nobody runs {command}"));
        }
    }
    Ok(())
}

#[test]
fn every_block_of_the_documentation_is_run_by_a_test_or_has_a_reason_why_not() {
    let mut seen = 0;
    for page in pages::all() {
        for block in pages::blocks(&page) {
            if let Err(why) = is_run(&page, &block) {
                panic!("{page}: this block {why}:\n{}", block.text);
            }
            seen += 1;
        }
    }
    assert!(seen > 80, "only {seen} found");
    for (page, language, _) in NOT_RUN {
        let blocks = pages::blocks(page);
        let is_there = blocks.iter().any(|block| block.language == language);
        assert!(is_there, "{page} has no {language} any more");
    }
}

#[test]
fn commands_written_out_without_a_prompt_are_run_too() {
    for page in pages::all() {
        for block in pages::blocks(&page) {
            let is_command = block.text.lines().any(|line| line.starts_with("LOCK."));
            if block.language == "text" && is_command {
                let name = Path::new(&page).file_name().unwrap().to_str().unwrap();
                let runner = pages::read("helpers/python/tests/test_guides.py");
                let runs = format!("(ROOT / \"docs/{name}\").read_text().splitlines()");
                assert!(runner.contains(&runs), "nobody runs {}", block.text);
            }
        }
    }
}
