//! One run: clients use a set-up, which the run disturbs for a while. Then every task makes a last request, nothing may be
//! left, and the histories are judged.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mortise_harness::{Dice, Server, array, cmd, text};

use crate::check::{self, Rule, Violation};
use crate::client::Kind;
use crate::crowd::{Crowd, Part, Play};
use crate::history::{History, Outcome, now, read_all};
use crate::setup::{Diary, Setup, trouble};
use crate::watcher::Watcher;

/// How long the last round may take, with graces, leases and a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long leases, boxes and graces may outlast the clients.
const CLEANUP: Duration = Duration::from_secs(40);
/// How often a control checks whether it has found its violation.
const LOOK: Duration = Duration::from_secs(1);
const DATABASES: u64 = 2;

/// The parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) length: Duration,
    pub(crate) parts: Vec<Part>,
    pub(crate) play: Play,
    /// Whether it has to find two inside, and ends then.
    pub(crate) is_control: bool,
    pub(crate) is_told: bool,
}

/// The result of a run.
pub(crate) struct Outcomes {
    pub(crate) took: Duration,
    is_control: bool,
    pub(crate) violations: Vec<Violation>,
    pub(crate) grants: usize,
    pub(crate) writes: usize,
    looks: usize,
    answers: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
    /// The folder of the histories, if they are kept.
    pub(crate) kept: Option<PathBuf>,
}

pub(crate) fn run(plan: &Plan, setup: &mut dyn Setup) -> Result<Outcomes, String> {
    let dir = tempfile::Builder::new()
        .prefix("mortise-proof-")
        .tempdir()
        .map_err(|error| error.to_string())?;
    let mut outcomes = play(plan, setup, dir.path()).map_err(|error| error.to_string())?;
    if !outcomes.violations.is_empty() && !plan.is_control {
        outcomes.kept = Some(dir.keep());
    }
    Ok(outcomes)
}

fn play(plan: &Plan, setup: &mut dyn Setup, dir: &Path) -> std::io::Result<Outcomes> {
    let began = now();
    let diary = Diary::create(&dir.join("nemesis.jsonl"), plan.is_told)?;
    let watcher = Watcher::start(setup.view(), plan.play.keys(), &dir.join("watcher.jsonl"))?;
    let mut crowd = Crowd::start(&plan.parts, &plan.play, setup, dir)?;
    disturb(plan, setup, &mut crowd, &diary, dir)?;
    let mut violations = Vec::new();
    if !plan.is_control {
        setup.heal(&diary);
        for name in crowd.last_round(PATIENCE) {
            violations.push(violation(Rule::NeverServed, name));
        }
    }
    drop(crowd);
    drop(watcher);
    let history = History::new(read_all(dir, plan.play.shared())?);
    if plan.is_control {
        violations.extend(check::inside(&history));
        for violation in &mut violations {
            violation.at = violation.at.saturating_sub(began);
        }
    } else {
        violations.extend(check::all(&history, setup.promises()));
        violations.extend(written(setup));
        violations.extend(left_over(setup));
    }
    let mut answers = BTreeMap::new();
    for answer in &history.answers {
        let what = match answer.outcome {
            Outcome::Refused => answer.text.split(' ').take(2).collect::<Vec<_>>().join(" "),
            outcome => format!("{outcome:?}").to_lowercase(),
        };
        *answers.entry(what).or_default() += 1;
    }
    Ok(Outcomes {
        took: Duration::from_nanos(now() - began),
        is_control: plan.is_control,
        violations,
        grants: history.beliefs.len(),
        writes: history
            .writes
            .iter()
            .filter(|it| it.done == Some(true))
            .count(),
        looks: history.seen.len(),
        answers,
        faults: diary.counts(),
        kept: None,
    })
}

fn violation(rule: Rule, text: String) -> Violation {
    Violation { rule, text, at: 0 }
}

/// Disturbs servers and clients, side by side, for as long as the run lasts.
fn disturb(
    plan: &Plan,
    setup: &mut dyn Setup,
    crowd: &mut Crowd,
    diary: &Diary,
    dir: &Path,
) -> std::io::Result<()> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = EndsOnDrop(&over);
        let over = &over;
        let servers = scope.spawn(move || {
            let mut dice = Dice::new(plan.seed);
            while !over.load(Ordering::SeqCst) {
                pause(&mut dice, 1_000);
                if dice.roll(3) == 0 {
                    trouble(setup, &mut dice, diary);
                } else {
                    setup.disturb(&mut dice, diary);
                }
            }
        });
        let clients = scope.spawn(move || {
            let mut dice = Dice::new(plan.seed ^ 0x5bd1_e995);
            while !over.load(Ordering::SeqCst) {
                pause(&mut dice, 600);
                crowd.disturb(&mut dice, diary);
            }
        });
        let end = Instant::now() + plan.length;
        let mut found = Ok(false);
        while Instant::now() < end && !servers.is_finished() && !clients.is_finished() {
            thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
            if plan.is_control {
                found = finds_two_twice(dir, plan);
                if !matches!(found, Ok(false)) {
                    break;
                }
            }
        }
        drop(ends);
        for lane in [servers, clients] {
            lane.join().expect("what disturbs has no trouble itself");
        }
        found.map(drop)
    })
}

/// A client that has left may not have recorded it at the first read.
fn finds_two_twice(dir: &Path, plan: &Plan) -> std::io::Result<bool> {
    if !finds_two(dir, plan)? {
        return Ok(false);
    }
    thread::sleep(LOOK);
    finds_two(dir, plan)
}

fn finds_two(dir: &Path, plan: &Plan) -> std::io::Result<bool> {
    let files = read_all(dir, plan.play.shared())?;
    Ok(!check::inside(&History::new(files)).is_empty())
}

struct EndsOnDrop<'a>(&'a AtomicBool);

impl Drop for EndsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn pause(dice: &mut Dice, up_to: u64) {
    thread::sleep(Duration::from_millis(50 + dice.roll(up_to)));
}

/// The violations in the lists of guarded writes.
fn written(setup: &dyn Setup) -> Vec<Violation> {
    let mut found = Vec::new();
    for server in setup.primaries() {
        let mut conn = server.connect();
        for database in 0..DATABASES {
            if conn.try_cmd(&["SELECT", &database.to_string()]).is_err() {
                continue;
            }
            for list in array(&cmd!(conn, "KEYS", "list:*")) {
                let list = text(list);
                let lines = cmd!(conn, "LRANGE", &list, 0, -1);
                let lines: Vec<String> = array(&lines).iter().map(text).collect();
                found.extend(check::ledger(&list, &lines));
            }
        }
    }
    found
}

/// The holds that the servers still show when all leases must be over.
fn left_over(setup: &dyn Setup) -> Vec<Violation> {
    let end = Instant::now() + CLEANUP;
    loop {
        let left: Vec<String> = setup.servers().into_iter().filter_map(rest).collect();
        if left.is_empty() || Instant::now() > end {
            let found = left.into_iter();
            return found.map(|text| violation(Rule::LeftOver, text)).collect();
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn rest(server: &Server) -> Option<String> {
    let info = server.info("lock");
    let names = [
        "locks",
        "holders",
        "waiters",
        "waiters_by_mail",
        "boxes",
        "letters",
    ];
    let counts = names.map(|name| (name, info[&format!("lock_{name}")].clone()));
    let left: Vec<_> = counts.iter().filter(|(_, count)| count != "0").collect();
    (!left.is_empty()).then(|| format!("port {}: {left:?}", server.port()))
}

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (grants, writes, looks) = (self.grants, self.writes, self.looks);
        writeln!(
            f,
            "  {:.0} s, {grants} grants, {writes} guarded writes, {looks} looks",
            self.took.as_secs_f64()
        )?;
        writeln!(f, "  requests: {}", listed(&self.answers))?;
        writeln!(f, "  faults: {}", listed(&self.faults))?;
        // A control has to find only one violation; several make a fault easier to understand.
        let shown = if self.is_control { 1 } else { 10 };
        for violation in self.violations.iter().take(shown) {
            writeln!(f, "  {violation}")?;
        }
        if self.violations.len() > shown {
            writeln!(f, "  … {} in all", self.violations.len())?;
        }
        if let Some(kept) = &self.kept {
            writeln!(f, "  histories: {}", kept.display())?;
        }
        Ok(())
    }
}

fn listed(counts: &BTreeMap<String, u64>) -> String {
    let counts = counts.iter().map(|(what, count)| format!("{count} {what}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// The clients of most runs.
pub(crate) fn usual() -> Vec<Part> {
    vec![
        Part::Ours(Kind::Library, 3),
        Part::Ours(Kind::Library, 3),
        Part::Ours(Kind::Blocked, 3),
        Part::Ours(Kind::Mail, 3),
    ]
}

/// The locks that they use.
pub(crate) fn usual_play(seed: u64) -> Play {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Play {
        seed,
        locks: names(&["orders", "also:{orders}", "stock", "report"]),
        bundle: names(&["orders", "also:{orders}"]),
        pools: names(&["orders:permits"]),
        guards: true,
        lingers: false,
    }
}
