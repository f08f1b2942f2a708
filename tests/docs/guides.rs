//! Every test and every file that the documentation names exists.

use crate::pages;

/// The first folders of paths that pages name.
const FOLDERS: [&str; 11] = [
    "benches/",
    "client/",
    "core/",
    "docs/",
    "helpers/",
    "packaging/",
    "scripts/",
    "src/",
    "tests/",
    "tools/",
    "verify/",
];

/// The text between backticks, without code blocks.
fn code_words(page: &str) -> Vec<String> {
    let (pieces, _) = pages::prose_and_blocks(page);
    pieces
        .iter()
        .flat_map(|piece| piece.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_test_and_file_that_a_page_names_exists() {
    let files = pages::files("", "rs");
    let code: String = files.iter().map(|file| pages::read(file)).collect();
    let mut names = 0;
    for page in pages::all() {
        for word in code_words(&page) {
            let is_path = FOLDERS.iter().any(|folder| word.starts_with(folder));
            let is_mutant = pages::root()
                .join(format!("verify/mutants/{word}.patch"))
                .exists();
            // The names of tests are sentences.
            let is_test = !is_mutant
                && !word.starts_with('_')
                && word.matches('_').count() >= 4
                && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            if is_path && !word.contains([' ', '*', '{']) {
                assert!(pages::root().join(&word).exists(), "{page} names {word}");
                names += 1;
            } else if is_test {
                assert!(code.contains(&format!("fn {word}(")), "{page} names {word}");
                names += 1;
            }
        }
    }
    assert!(names > 20, "only {names} found");
}

#[test]
fn every_make_target_that_a_page_names_exists() {
    let mut named = 0;
    for page in pages::all() {
        for word in code_words(&page) {
            for rest in word.split("make ").skip(1) {
                let words = rest.split(' ');

                if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '-') {
                    assert!(pages::is_target(words), "{page}: make {rest}");
                    named += 1;
                }
            }
        }
    }
    assert!(named > 30, "only {named} found");
}

/// The names in the code that a word of the page stands for: the last name of a path, or the names in its braces.
fn names(path: &str) -> Vec<&str> {
    let last = path.rsplit("::").next().unwrap();
    let inside = path
        .split_once('{')
        .map(|(_, names)| names.trim_end_matches('}'));
    inside.unwrap_or(last).split(", ").collect()
}

#[test]
fn every_name_on_the_design_page_is_a_type_or_a_file() {
    let design = pages::read("docs/design.md");
    let words = design.split("\n## Words").nth(1).unwrap();
    let words = words.split("\n## ").next().unwrap();
    let files: Vec<String> = ["core/src", "src"]
        .iter()
        .flat_map(|dir| pages::files(dir, "rs"))
        .collect();
    let code: String = files.iter().map(|file| pages::read(file)).collect();
    let mut found = 0;
    for line in words
        .lines()
        .filter(|line| line.matches(" | ").count() == 2)
    {
        let types = line.rsplit(" | ").next().unwrap();
        for path in types.split('`').skip(1).step_by(2) {
            for name in names(path) {
                let is_file = files
                    .iter()
                    .any(|file| file.ends_with(&format!("/{name}.rs")));
                let is_type = ["struct", "enum", "trait"].iter().any(|kind| {
                    let named = format!("{kind} {name}");
                    let mut found = code.split(&named).skip(1);
                    found.any(|rest| !rest.starts_with(char::is_alphanumeric))
                });
                let is_variant = code.contains(&format!("    {name},\n"));
                assert!(is_file || is_type || is_variant, "the code has no {path}");
                found += 1;
            }
        }
    }
    assert!(found > 25, "only {found}");
}
