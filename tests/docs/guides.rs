//! What the guides say is true: every test and every file that they name is there, and every program in them is run by a test.

use std::fs;
use std::path::{Path, PathBuf};

const GUIDES: [&str; 19] = [
    "README.md",
    "CONTRIBUTING.md",
    "benches/peers/README.md",
    "client/README.md",
    "docs/clients.md",
    "docs/commands.md",
    "docs/design.md",
    "docs/guarantees.md",
    "docs/install.md",
    "docs/migrating.md",
    "docs/migrating/redislock.md",
    "docs/migrating/redisson.md",
    "docs/migrating/redsync.md",
    "docs/migrating/rueidislock.md",
    "docs/numbers.md",
    "helpers/go/README.md",
    "helpers/java/README.md",
    "helpers/node/README.md",
    "helpers/python/README.md",
];

/// What stands first in the path of a file that a guide names.
const FOLDERS: [&str; 10] = [
    "benches/",
    "client/",
    "core/",
    "deploy/",
    "docs/",
    "helpers/",
    "packaging/",
    "scripts/",
    "src/",
    "tests/",
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
            let is_path = FOLDERS.iter().any(|folder| word.starts_with(folder));
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

/// Who runs the programs of a language that guides show, as they stand there.
const RUNNERS: [(&str, &[&str]); 4] = [
    (
        "python",
        &[
            "tests/docs/python.rs",
            "helpers/python/tests/test_guides.py",
        ],
    ),
    ("js", &["helpers/node/test/examples.test.js"]),
    ("go", &["helpers/go/readme_test.go", "benches/peers/pages"]),
    (
        "java",
        &[
            "helpers/java/src/test/java/mortise/ReadmeTest.java",
            "benches/peers/pages",
        ],
    ),
];

#[test]
fn every_program_in_a_guide_is_run_by_a_test() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let mut programs = 0;
    for guide in GUIDES {
        let page = Path::new(guide).file_stem().unwrap().to_str().unwrap();
        for (language, runners) in RUNNERS {
            if read(guide).contains(&format!("```{language}\n")) {
                let runs = runners.iter().any(|runner| read(runner).contains(page));
                assert!(runs, "nobody runs the {language} in {guide}");
                programs += 1;
            }
        }
    }
    assert!(programs >= 10, "only {programs} found");
}
