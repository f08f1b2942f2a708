//! The project's address, its packages' metadata, and the workflows that test and release it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use yaml_rust2::{Yaml, YamlLoader};

use crate::pages::{self, read, root};

fn yaml(path: &str) -> Yaml {
    YamlLoader::load_from_str(&read(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
        .remove(0)
}

/// Runs a command in `folder`, and returns its output if it succeeded.
fn run(folder: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir(folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into();
    if output.status.success() {
        Ok(text)
    } else {
        Err(text)
    }
}

#[test]
fn the_address_of_the_project_is_the_same_wherever_it_is_stated() {
    run(root(), &["packaging/scripts/address", "--check"]).unwrap();
}

#[test]
fn changing_the_address_of_the_project_takes_one_line() {
    let copy = TempDir::new().unwrap();
    let to = copy.path().to_str().unwrap();
    let pack = format!(
        "git ls-files -z --cached --others --exclude-standard | tar --null -T - -c --ignore-failed-read | tar -x -C {to}"
    );
    run(root(), &["sh", "-c", &pack]).unwrap();
    run(copy.path(), &["git", "init", "--quiet"]).unwrap();
    let address = copy.path().join("packaging/address");
    fs::write(address, "https://github.com/Somebody/locks\n").unwrap();

    assert!(run(copy.path(), &["packaging/scripts/address", "--check"]).is_err());
    run(copy.path(), &["packaging/scripts/address"]).unwrap();
    run(copy.path(), &["packaging/scripts/address", "--check"]).unwrap();

    let states = |file: &str, text: &str| {
        let there = fs::read_to_string(copy.path().join(file)).unwrap();
        assert!(there.contains(text), "{file} lacks {text}");
    };
    states(
        "helpers/go/go.mod",
        "module github.com/Somebody/locks/helpers/go\n",
    );
    states(
        "helpers/java/pom.xml",
        "<groupId>io.github.somebody</groupId>",
    );
    states(
        "Cargo.toml",
        "repository = \"https://github.com/Somebody/locks\"",
    );
    states("README.md", "/actions/workflows/ci.yml/badge.svg");
    states("Cargo.toml", "<Somebody@users.noreply.github.com>");
}

#[test]
fn every_package_has_the_same_version_and_the_licences() {
    let cargo = read("Cargo.toml");
    let version = cargo.split("version = \"").nth(1).unwrap();
    let version = version.split('"').next().unwrap();
    for (file, line) in [
        ("helpers/node/package.json", "\"version\": \"V\""),
        ("helpers/python/pyproject.toml", "version = \"V\""),
        (
            "helpers/java/pom.xml",
            "<artifactId>mortise-lock</artifactId>\n  <version>V</version>",
        ),
        ("helpers/ruby/mortise-lock.gemspec", "spec.version = \"V\""),
        ("packaging/Containerfile", "image.version=\"V\""),
        ("packaging/kubernetes/kustomization.yaml", "newTag: V\n"),
    ] {
        let line = line.replace('V', version);
        assert!(read(file).contains(&line), "{file} lacks {line}");
    }
    for folder in [
        "client",
        "helpers/go",
        "helpers/java",
        "helpers/node",
        "helpers/php",
        "helpers/python",
        "helpers/ruby",
    ] {
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            let copy = read(&format!("{folder}/{licence}"));
            assert_eq!(copy, read(licence), "{folder}/{licence}");
        }
    }
}

/// The steps of all jobs of a workflow.
fn steps(workflow: &Yaml) -> Vec<Yaml> {
    let jobs = workflow["jobs"].as_hash().unwrap();
    let steps = jobs.values().flat_map(|job| job["steps"].as_vec().unwrap());
    steps.cloned().collect()
}

#[test]
fn workflows_call_existing_scripts_and_pin_the_versions_of_actions() {
    let (mut called, mut used) = (0, 0);
    for name in ["ci.yml", "release.yml", "weekly.yml"] {
        for step in steps(&yaml(&format!(".github/workflows/{name}"))) {
            if let Some(uses) = step["uses"].as_str() {
                let (_, version) = uses.split_once('@').unwrap_or_else(|| panic!("{uses}"));
                assert!(version.starts_with('v'), "{uses}");
                used += 1;
                continue;
            }
            let lines = step["run"].as_str().unwrap();
            let words: Vec<&str> = lines.split_whitespace().collect();
            for (at, word) in words.iter().enumerate() {
                let is_script = word.contains("scripts/") || word.starts_with(".ci/");
                if is_script {
                    assert!(root().join(word).is_file(), "{name}: {word}");
                    called += 1;
                }
                if *word == "make" && !lines.contains("${{ matrix.target }}") {
                    let rest = words[at + 1..].iter().copied();
                    assert!(pages::is_target(rest), "{name}: {lines}");
                    called += 1;
                }
            }
        }
    }
    assert!(called >= 7 && used >= 15, "{called} {used}");
}

#[test]
fn what_runs_every_week_exists() {
    let workflow = yaml(".github/workflows/weekly.yml");
    let targets = &workflow["jobs"]["verify"]["strategy"]["matrix"]["target"];
    for target in targets.as_vec().unwrap() {
        let target = target.as_str().unwrap();
        let words = ["-C", "verify"].into_iter().chain(target.split(' '));
        assert!(pages::is_target(words), "{target}");
    }
}

#[test]
fn a_change_is_tested_by_ci_and_on_every_server() {
    let workflow = yaml(".github/workflows/ci.yml");
    let runs = |what: &str| {
        steps(&workflow)
            .iter()
            .any(|step| step["run"].as_str().is_some_and(|run| run.contains(what)))
    };
    assert!(runs(".ci/run") && runs("make -C verify servers SERVERS=${{ matrix.server }}"));
    let matrix = &workflow["jobs"]["servers"]["strategy"]["matrix"]["server"];
    let servers: Vec<_> = matrix
        .as_vec()
        .unwrap()
        .iter()
        .map(|s| s.as_str())
        .collect();
    let names = run(root(), &["scripts/servers", "names"]).unwrap();
    let names: Vec<_> = names.lines().map(Some).collect();
    assert_eq!(servers, names);
}

#[test]
fn dependabot_watches_every_folder_with_dependencies() {
    let manifests = [
        ("cargo", "Cargo.toml"),
        ("gomod", "go.mod"),
        ("npm", "package.json"),
        ("maven", "pom.xml"),
        ("composer", "composer.json"),
        ("docker", "Containerfile"),
    ];
    let updates = yaml(".github/dependabot.yml");
    let mut told = 0;
    for update in updates["updates"].as_vec().unwrap() {
        let ecosystem = update["package-ecosystem"].as_str().unwrap();
        let folders = match update["directories"].as_vec() {
            Some(several) => several.iter().map(|folder| folder.as_str()).collect(),
            None => vec![update["directory"].as_str()],
        };
        for folder in folders {
            let folder = root().join(folder.unwrap().trim_start_matches('/'));
            assert!(folder.is_dir(), "{}", folder.display());
            if let Some((_, manifest)) = manifests.iter().find(|(name, _)| *name == ecosystem) {
                assert!(folder.join(manifest).is_file(), "{}", folder.display());
            }
            told += 1;
        }
    }
    assert!(told >= 10, "{told}");
}

#[test]
fn forms_for_issues_have_required_fields() {
    for form in ["bug.yml", "idea.yml"] {
        let form = yaml(&format!(".github/ISSUE_TEMPLATE/{form}"));
        assert!(form["name"].as_str().is_some() && form["description"].as_str().is_some());
        let fields = form["body"].as_vec().unwrap();
        let required = |field: &Yaml| field["validations"]["required"].as_bool() == Some(true);
        assert!(fields.iter().any(required));
    }
}

#[test]
fn the_root_has_the_folders_that_contributing_lists_and_no_others() {
    let page = read("CONTRIBUTING.md");
    let list = page.split("## Where a thing belongs\n\n```text\n").nth(1);
    let list = list.unwrap().split("```").next().unwrap();
    let listed: BTreeSet<&str> = list
        .lines()
        .map(|line| line.split_once('/').unwrap().0)
        .collect();
    let files = run(root(), &["git", "ls-files"]).unwrap();
    // Those of tools begin with a dot.
    let folders: BTreeSet<&str> = files
        .lines()
        .filter_map(|file| Some(file.split_once('/')?.0))
        .filter(|folder| !folder.starts_with('.'))
        .collect();
    assert_eq!(folders, listed);
}
