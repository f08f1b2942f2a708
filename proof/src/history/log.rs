//! Files of records. Each record is one `write` to the end of the file, so a client that is killed leaves whole lines.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::record::Record;

#[derive(Debug)]
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn create(path: &Path) -> io::Result<Log> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Log(file))
    }

    /// # Panics
    /// If the file cannot be written: a history with a gap proves nothing.
    pub(crate) fn write(&self, record: &Record) {
        let mut line = serde_json::to_vec(record).expect("a record is JSON");
        line.push(b'\n');
        (&self.0)
            .write_all(&line)
            .expect("the history can be written");
    }
}

/// The records of all files in `dir`, a list for each.
pub(crate) fn read_all(dir: &Path) -> io::Result<Vec<Vec<Record>>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "jsonl") {
            files.push(read(&path)?);
        }
    }
    Ok(files)
}

fn read(path: &Path) -> io::Result<Vec<Record>> {
    let text = fs::read_to_string(path)?;
    // A client that runs may be about to write the rest.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line: &str| {
        serde_json::from_str(line)
            .map_err(|error| io::Error::other(format!("{}: {error}: {line}", path.display())))
    };
    whole.lines().map(parse).collect()
}
