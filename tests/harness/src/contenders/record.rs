//! The records of contending clients.

use std::time::Instant;

/// The time one client was inside, on one grant.
#[derive(Debug, Clone)]
pub struct Stint {
    /// The client.
    pub owner: String,
    /// The grant's fencing token.
    pub token: i64,
    /// The port of the server that granted.
    pub port: u16,
    /// When the client began to believe.
    pub begin: Instant,
    /// When it stopped.
    pub end: Instant,
}

/// The records of all clients.
#[derive(Debug, Default)]
pub struct Record {
    /// Sorted by their beginnings once the clients have been stopped.
    pub stints: Vec<Stint>,
    /// Error lines, and from which port.
    pub refusals: Vec<(u16, String)>,
}

impl Record {
    /// The pairs of stints of which the second began before the first was over.
    pub fn overlaps(&self) -> Vec<(&Stint, &Stint)> {
        let mut overlaps = Vec::new();
        let mut last: Option<&Stint> = None;
        for stint in &self.stints {
            if let Some(last) = last
                && stint.begin < last.end
            {
                overlaps.push((last, stint));
            }
            if last.is_none_or(|last| last.end < stint.end) {
                last = Some(stint);
            }
        }
        overlaps
    }

    /// How many stints were granted by the server on `port`.
    pub fn granted_by(&self, port: u16) -> usize {
        self.stints
            .iter()
            .filter(|stint| stint.port == port)
            .count()
    }

    /// Checks that no two were inside together, and that tokens grew with time, from one owner to the next.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn assert_exclusive(&self) {
        let overlaps = self.overlaps();
        assert!(overlaps.is_empty(), "two inside: {overlaps:#?}");
        for pair in self.stints.windows(2) {
            assert!(
                pair[0].token < pair[1].token || pair[0].owner == pair[1].owner,
                "a token went back: {pair:#?}"
            );
        }
    }
}

/// Repeats a run with a wrong setting until one finds two inside. Even then their tokens differ.
///
/// # Panics
/// If none of so many runs does.
#[track_caller]
pub fn assert_finds_two_inside(attempts: u32, run: impl Fn() -> Record) {
    let found = (0..attempts).any(|_| {
        let record = run();
        let overlaps = record.overlaps();
        assert!(overlaps.iter().all(|(one, other)| one.token != other.token));
        !overlaps.is_empty()
    });
    assert!(found, "{attempts} runs have not found two inside");
}
