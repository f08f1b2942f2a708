//! The workers of the libraries in other languages (`helpers/README.md`).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A worker of a language.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    folder: PathBuf,
    pub(crate) name: String,
}

impl Worker {
    /// Its command. It works on a lock and its permits until its standard input ends.
    pub(crate) fn command(&self, port: u16, key: &str, ledger: &Path) -> Command {
        const SECONDS: &str = "86400";
        let mut command = Command::new("./interop");
        command
            .current_dir(&self.folder)
            .args(["work", &self.name, &port.to_string(), key, SECONDS])
            .arg(ledger)
            .stdout(Stdio::null());
        command
    }
}

/// The workers of all or some of the installed languages. Prints which are missing.
pub(crate) fn workers(wanted: &str) -> Result<Vec<Worker>, String> {
    let mut workers = Vec::new();
    for folder in folders(wanted)? {
        match workers_of(&folder) {
            Ok(found) => workers.extend(found),
            Err(reason) => println!("left out: {}: {reason}", folder.display()),
        }
    }
    Ok(workers)
}

fn folders(wanted: &str) -> Result<Vec<PathBuf>, String> {
    let helpers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../helpers");
    let entries = helpers.read_dir().map_err(|error| error.to_string())?;
    let all = entries.filter_map(|entry| entry.ok().map(|it| it.path()));
    let mut folders: Vec<PathBuf> = all.filter(|it| it.join("interop").exists()).collect();
    folders.sort();
    match wanted {
        "all" => {}
        "none" => folders.clear(),
        names => {
            let names: Vec<&str> = names.split(',').collect();
            folders.retain(|it| names.iter().any(|name| it.ends_with(name)));
            if folders.len() < names.len() {
                return Err(format!("one of these is no language: {wanted}"));
            }
        }
    }
    Ok(folders)
}

fn workers_of(folder: &Path) -> Result<Vec<Worker>, String> {
    for call in ["toolchain", "prepare", "build"] {
        interop(folder, call)?;
    }
    let names = interop(folder, "workers")?;
    let worker = |name: &str| Worker {
        folder: folder.to_owned(),
        name: name.to_owned(),
    };
    Ok(names.split_whitespace().map(worker).collect())
}

/// The output of a call.
fn interop(folder: &Path, call: &str) -> Result<String, String> {
    let nothing = File::open("/dev/null").map_err(|error| error.to_string())?;
    let out = Command::new("./interop")
        .arg(call)
        .current_dir(folder)
        .stdin(nothing)
        .output()
        .map_err(|error| error.to_string())?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&out.stderr);
    let last = text.lines().last().unwrap_or_default();
    Err(format!("{call} failed: {last}"))
}
