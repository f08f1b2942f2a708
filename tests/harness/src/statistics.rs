//! What a server counts of the commands that it has run, and of the errors that it has replied.

use crate::server::Server;

impl Server {
    /// How often it has run a command, whose name may be in upper or lower case: `calls("LOCK.ACQUIRE")`, `calls("cluster|nodes")`.
    ///
    /// # Panics
    /// If the server cannot be reached.
    #[track_caller]
    pub fn calls(&self, command: &str) -> u64 {
        let line = self.statistic("commandstats", &format!("cmdstat_{command}"));
        line.map_or(0, |line| number(&line, "calls="))
    }

    /// How often it has replied an error with this code: `errors("NOPERM")`.
    ///
    /// # Panics
    /// If the server cannot be reached.
    #[track_caller]
    pub fn errors(&self, code: &str) -> u64 {
        let line = self.statistic("errorstats", &format!("errorstat_{code}"));
        line.map_or(0, |line| number(&line, "count="))
    }

    #[track_caller]
    fn statistic(&self, section: &str, name: &str) -> Option<String> {
        let mut lines = self.info(section).into_iter();
        let line = lines.find(|(it, _)| it.eq_ignore_ascii_case(name));
        line.map(|(_, line)| line)
    }
}

/// The number that follows `field` among the fields of a line.
#[track_caller]
fn number(line: &str, field: &str) -> u64 {
    let mut fields = line.split(',');
    let number = fields.find_map(|it| it.strip_prefix(field)?.parse().ok());
    number.unwrap_or_else(|| panic!("no number {field} in {line}"))
}
