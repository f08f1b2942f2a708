//! No files of a crate use each other in a circle: a reader can understand a file from the file itself and what lies below it.
//!
//! A file uses each file that defines something it names: in a `use`, or by a path from `crate`, `self`, `super`, a module that it imports or
//! a child. What a file re-exports (`pub use child::Thing`) is a use of `child` for those who take it from there, and none for the file
//! itself. Comments and unit tests do not count, and methods are not followed: an `impl` may lie in another file than its type.

use std::collections::{BTreeMap, BTreeSet};

use crate::pages;

/// The sources of the crates.
const CRATES: [&str; 6] = [
    "core/src",
    "src",
    "client/src",
    "tools/src",
    "tests/harness/src",
    "verify/histories/src",
];

/// One path of a `use`, with the name by which the file knows what it leads to.
struct Use {
    path: Vec<String>,
    name: String,
    public: bool,
}

/// What a file says about other files.
#[derive(Default)]
struct Module {
    file: String,
    uses: Vec<Use>,
    paths: Vec<Vec<String>>,
    /// The names that it defines.
    items: BTreeSet<String>,
    macros: BTreeSet<String>,
}

/// The code of a file in words and signs, without comments, strings and unit tests.
fn words(text: &str) -> Vec<String> {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let code = code.replace("'\"'", " ").replace("'\\\"'", " ");
    let mut words = Vec::new();
    for line in without_strings(&code).lines() {
        let line = line.split("//").next().unwrap().replace("::", " \u{0} ");
        let mut word = String::new();
        for c in line.chars().chain([' ']) {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            match c {
                '\u{0}' => words.push("::".to_owned()),
                c if c.is_whitespace() => {}
                c => words.push(c.to_string()),
            }
        }
    }
    words
}

/// The code with empty strings. A string may have several lines; a comment with an odd quote ends with its line.
fn without_strings(code: &str) -> String {
    let (mut out, mut inside, mut comment) = (String::new(), false, false);
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => comment = false,
            '/' if !inside && chars.peek() == Some(&'/') => comment = true,
            '\\' if inside => {
                chars.next();
            }
            '"' if !comment => inside = !inside,
            _ => {}
        }
        if !inside || c == '\n' {
            out.push(c);
        }
    }
    out
}

impl Module {
    fn parse(file: &str, text: &str) -> Module {
        const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "const", "static"];
        let words = words(text);
        let mut module = Module {
            file: file.to_owned(),
            ..Module::default()
        };
        let mut at = 0;
        while at < words.len() {
            let before = at.checked_sub(1).map_or("", |before| &words[before]);
            let word = words[at].as_str();
            let next = words.get(at + 1).map_or("", String::as_str);
            // Not the `use<'a>` of a type.
            if word == "use" && next != "<" {
                let end = (at..).find(|end| words[*end] == ";").unwrap();
                let public = ["pub", ")"].contains(&before);
                module.take_tree(&[], &words[at + 1..end], public);
                at = end;
            } else if next == "::" && before != "::" && is_name(word) {
                let path = path_from(&words[at..]);
                at += 2 * path.len() - 2;
                module.paths.push(path);
            } else if KINDS.contains(&word) && is_name(next) {
                module.items.insert(next.to_owned());
            } else if word == "macro_rules" {
                module.macros.insert(words[at + 2].clone());
            }
            at += 1;
        }
        module
    }

    /// Records each path of the tree of a `use`.
    fn take_tree(&mut self, prefix: &[String], words: &[String], public: bool) {
        let mut path = prefix.to_vec();
        for (at, word) in words.iter().enumerate() {
            match word.as_str() {
                "{" => {
                    let inner = &words[at + 1..words.len() - 1];
                    for part in parts(inner) {
                        self.take_tree(&path, part, public);
                    }
                    return;
                }
                "as" => {
                    let name = words[at + 1].clone();
                    self.uses.push(Use { path, name, public });
                    return;
                }
                "::" => {}
                "self" if !path.is_empty() => {}
                word => path.push(word.to_owned()),
            }
        }
        if let Some(name) = path.last().cloned() {
            self.uses.push(Use { path, name, public });
        }
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The names of a path that begins here.
fn path_from(words: &[String]) -> Vec<String> {
    let mut path = vec![words[0].clone()];
    for pair in words[1..].chunks_exact(2) {
        if pair[0] != "::" || !is_name(&pair[1]) {
            break;
        }
        path.push(pair[1].clone());
    }
    path
}

/// The parts between the commas that are in no inner braces.
fn parts(words: &[String]) -> Vec<&[String]> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, word) in words.iter().enumerate() {
        match word.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                parts.push(&words[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&words[from..]);
    parts.retain(|part| !part.is_empty());
    parts
}

/// The files of a crate by their modules: `` for its root, `a::b` for `a/b.rs` or `a/b/mod.rs`.
struct Crate(BTreeMap<String, Module>);

/// Where a path leads: the module whose file defines what it names, and whether it names the module itself.
type Target = (String, bool);

impl Crate {
    fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Crate {
        let modules = files.into_iter().map(|(file, text)| {
            let path = file.trim_end_matches(".rs");
            let names = path
                .split('/')
                .filter(|name| !["mod", "lib", "main"].contains(name));
            let name = names.collect::<Vec<_>>().join("::");
            (name, Module::parse(file, text))
        });
        Crate(modules.collect())
    }

    fn child(&self, module: &str, name: &str) -> Option<String> {
        let child = [module, name].join("::");
        let child = child.trim_start_matches("::").to_owned();
        self.0.contains_key(&child).then_some(child)
    }

    /// Where a path leads, as it stands in the file of `module`. `None` if it leads out of the crate.
    fn resolve(&self, module: &str, path: &[String], depth: usize) -> Option<Target> {
        let mut at = module.to_owned();
        for (number, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => at = String::new(),
                "self" => {}
                "super" => {
                    at = at
                        .rsplit_once("::")
                        .map_or("", |(parent, _)| parent)
                        .to_owned()
                }
                name => match self.child(&at, name) {
                    Some(child) => at = child,
                    None => match self.item(&at, name, number == 0, depth)? {
                        (target, true) => at = target,
                        found => return Some(found),
                    },
                },
            }
        }
        Some((at, true))
    }

    /// The file behind a name in the file of `module`; `own` if it stands there, and not behind its path.
    fn item(&self, module: &str, name: &str, own: bool, depth: usize) -> Option<Target> {
        let found = &self.0[module];
        let here = Some((module.to_owned(), false));
        if found.items.contains(name) || depth > 20 {
            return here;
        }
        if let Some((target, _)) = self.0.iter().find(|(_, it)| it.macros.contains(name)) {
            return Some((target.clone(), false));
        }
        for used in found.uses.iter().filter(|used| own || used.public) {
            if used.name == name && used.path.len() > 1 {
                return self.resolve(module, &used.path, depth + 1);
            }
        }
        for used in found.uses.iter().filter(|used| used.name == "*") {
            let path = &used.path[..used.path.len() - 1];
            if let Some((target, true)) = self.resolve(module, path, depth + 1)
                && self.0[&target].items.contains(name)
            {
                return Some((target, false));
            }
        }
        if own { None } else { here }
    }

    /// The files that each file uses.
    fn arrows(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut arrows = BTreeMap::new();
        for (name, module) in &self.0 {
            let mut targets = BTreeSet::new();
            for used in &module.uses {
                let glob = used.name == "*";
                let path = &used.path[..used.path.len() - usize::from(glob)];
                if let Some((target, is_module)) = self.resolve(name, path, 0) {
                    let below = name.is_empty() || target.starts_with(&format!("{name}::"));
                    // An imported module counts by what is taken from it.
                    if !(used.public && below) && (glob || !is_module) {
                        targets.insert(target);
                    }
                }
            }
            for path in &module.paths {
                let begins = self.resolve(name, &path[..1], 0);
                if begins.is_some_and(|(_, is_module)| is_module)
                    && let Some((target, false)) = self.resolve(name, path, 0)
                {
                    targets.insert(target);
                }
            }
            targets.remove(name);
            let files = targets.iter().map(|target| self.0[target].file.as_str());
            arrows.insert(module.file.as_str(), files.collect());
        }
        arrows
    }

    /// The arrows between files that use each other in a circle.
    fn circles(&self) -> Vec<String> {
        let arrows = self.arrows();
        let reach = |from: &str| {
            let (mut reached, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
            while let Some(file) = next.pop() {
                for target in &arrows[file.as_str()] {
                    if reached.insert((*target).to_owned()) {
                        next.push((*target).to_owned());
                    }
                }
            }
            reached
        };
        let reached: BTreeMap<&str, BTreeSet<String>> =
            arrows.keys().map(|file| (*file, reach(file))).collect();
        let mut found = Vec::new();
        for (file, targets) in &arrows {
            for target in targets {
                if reached[target].contains(*file) {
                    found.push(format!("{file} -> {target}"));
                }
            }
        }
        found
    }
}

#[test]
fn no_files_of_a_crate_use_each_other_in_a_circle() {
    for folder in CRATES {
        let files = pages::files(folder, "rs");
        let texts: Vec<String> = files.iter().map(|file| pages::read(file)).collect();
        let names = files.iter().map(|file| &file[folder.len() + 1..]);
        let files = Crate::new(names.zip(texts.iter().map(String::as_str)));
        assert!(files.0.len() > 5, "{folder}");
        let found = files.circles();
        assert!(found.is_empty(), "{folder}: {found:#?}");
    }
}

#[test]
fn a_circle_of_three_files_is_found_without_the_file_that_only_uses_it() {
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\nmod user;\n"),
        ("a.rs", "use crate::{\n    b::B,\n};\npub struct A;\n"),
        ("b.rs", "pub struct B;\nfn f() { crate::c::g() }\n"),
        ("c.rs", "pub fn g() -> super::a::A { todo() }\n"),
        ("user.rs", "use crate::a::A;\n"),
    ];
    let arrows = ["a.rs -> b.rs", "b.rs -> c.rs", "c.rs -> a.rs"];
    assert_eq!(Crate::new(files).circles(), arrows);
}

#[test]
fn a_re_export_counts_as_a_use_of_the_file_behind_it() {
    let room = "mod one;\nmod two;\npub(crate) use one::One;\npub(crate) use two::*;\n";
    let one = "use super::Two;\npub struct One;\n";
    let two = "use crate::room;\nfn f(_: room::One) {}\npub struct Two;\n";
    let files = [
        ("lib.rs", "mod room;\n"),
        ("room/mod.rs", room),
        ("room/one.rs", one),
        ("room/two.rs", two),
    ];
    let arrows = ["room/one.rs -> room/two.rs", "room/two.rs -> room/one.rs"];
    assert_eq!(Crate::new(files).circles(), arrows);
}

#[test]
fn comments_strings_and_unit_tests_do_not_count_as_uses() {
    let b = "/// See [`crate::a::A`].\npub struct B;\nconst TEXT: &str = \"crate::a::A\";\n\
             #[cfg(test)]\nmod tests {\n    use crate::a::A;\n    use super::*;\n}\n";
    let files = [
        ("lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
        ("a.rs", "use crate::b::B;\npub struct A;\n"),
        ("b.rs", b),
    ];
    assert_eq!(Crate::new(files).circles(), [""; 0]);
}
