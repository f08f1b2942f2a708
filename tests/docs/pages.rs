//! The pages of the documentation in the repository.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Folders without pages of ours: built files, and packages.
const NOT_OURS: [&str; 3] = ["target", "node_modules", "golden"];

/// All files below `dir` with this ending, as paths from the root.
pub(crate) fn files(dir: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root().join(dir)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !NOT_OURS.contains(&name) && !name.starts_with('.') {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == ending)
            {
                let path = path.strip_prefix(root()).unwrap();
                found.push(path.to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Whether there is a target for the words after `make`: `-C FOLDER TARGET`, or `TARGET`, or none.
pub(crate) fn is_target<'a>(mut words: impl Iterator<Item = &'a str>) -> bool {
    let first = words.next().unwrap_or("build");
    let (makefile, target) = match first {
        "-C" => (
            format!("{}/Makefile", words.next().unwrap()),
            words.next().unwrap_or("help"),
        ),
        _ => ("Makefile".to_owned(), first),
    };
    let target = target.trim_end_matches([';', ',', ')']);
    read(&makefile).contains(&format!("\n{target}: "))
        || read(&makefile).contains(&format!("\n{target}:\n"))
}

/// All pages.
pub(crate) fn all() -> Vec<String> {
    let pages = files("", "md");
    assert!(pages.len() >= 30, "{pages:?}");
    pages
}

/// A block of code: the word after its backticks, and its text.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
}

/// The prose of a page, in pieces, and the blocks between them.
pub(crate) fn prose_and_blocks(page: &str) -> (Vec<String>, Vec<Block>) {
    let (mut prose, mut blocks) = (vec![String::new()], Vec::new());
    let mut open: Option<Block> = None;
    for line in read(page).lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block {
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => {
                blocks.extend(open.take());
                prose.push(String::new());
            }
            (None, Some(block)) => {
                block.text += line;
                block.text += "\n";
            }
            (None, None) => {
                let piece = prose.last_mut().expect("one piece at least");
                *piece += line;
                *piece += "\n";
            }
        }
    }
    assert!(open.is_none(), "{page}: a block does not end");
    (prose, blocks)
}

pub(crate) fn blocks(page: &str) -> Vec<Block> {
    prose_and_blocks(page).1
}

/// A page without its blocks of code.
pub(crate) fn prose(page: &str) -> String {
    prose_and_blocks(page).0.concat()
}
