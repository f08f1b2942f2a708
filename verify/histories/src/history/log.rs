//! Files of records. Each record is one `write` to the end of the file, so a client that is killed leaves whole lines.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::clock::Offset;
use super::ledger;
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
        self.write_all(std::slice::from_ref(record));
    }

    /// Writes several at once.
    ///
    /// # Panics
    /// As [`Log::write`].
    pub(crate) fn write_all(&self, records: &[Record]) {
        let mut lines = Vec::new();
        for record in records {
            serde_json::to_writer(&mut lines, record).expect("a record is JSON");
            lines.push(b'\n');
        }
        (&self.0)
            .write_all(&lines)
            .expect("the history can be written");
    }
}

/// The records of all files in `dir`, a list for each. Ledgers are those of workers on the lock `key`.
pub(crate) fn read_all(dir: &Path, key: &str) -> io::Result<Vec<Vec<Record>>> {
    let offset = Offset::measure();
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let extension = path.extension().and_then(OsStr::to_str);
        let fault = |error: String| io::Error::other(format!("{}: {error}", path.display()));
        match extension {
            Some("jsonl") => files.push(records(&whole_lines(&path)?).map_err(fault)?),
            Some("ledger") => {
                let text = whole_lines(&path)?;
                files.push(ledger::records(&text, key, offset).map_err(fault)?);
            }
            _ => {}
        }
    }
    Ok(files)
}

/// Leaves out the last line while a running client may still complete it.
fn whole_lines(path: &Path) -> io::Result<String> {
    let mut text = fs::read_to_string(path)?;
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    Ok(text)
}

fn records(text: &str) -> Result<Vec<Record>, String> {
    let parse = |line: &str| serde_json::from_str(line).map_err(|error| format!("{error}: {line}"));
    text.lines().map(parse).collect()
}
