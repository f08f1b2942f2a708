//! The screens in docs/top.md are those of the program.

use std::fs;
use std::path::Path;
use std::time::Duration;

use mortise_top::model::{
    Deployment, Detail, Facts, Hold, Key, Mode, Report, Role, Sample, State, Times, Totals, Waiter,
    Wanted,
};
use mortise_top::options::USAGE;
use mortise_top::view::{self, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

const SERVER: &str = "127.0.0.1:6379";

#[test]
fn the_screens_in_the_guide_are_those_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/top.md");
    let guide = fs::read_to_string(path).unwrap();
    let mut state = state();
    let list = screen(&state, 18);
    state.press(Key::Enter);
    let lock = screen(&state, 20);
    state.press(Key::Char('b'));
    let question = screen(&state, 20);
    for (name, screen) in [
        ("the list", list),
        ("a lock", lock),
        ("a question", question),
    ] {
        assert!(
            guide.contains(&screen),
            "docs/top.md shows {name} otherwise:\n{screen}"
        );
    }
    let options = USAGE.split("\n\n").last().unwrap();
    assert!(
        guide.contains(options),
        "docs/top.md tells the options otherwise:\n{options}"
    );
}

#[test]
fn the_manual_page_has_every_option() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/mortise-top.1");
    let page = fs::read_to_string(path).unwrap();
    let words = USAGE.split_whitespace();
    let options: Vec<&str> = words.filter(|word| word.starts_with("--")).collect();
    assert!(options.len() >= 10, "{options:?}");
    for option in options {
        let option = option.trim_end_matches(',').replace("--", "\\-\\-");
        assert!(page.contains(&option), "{option} is not in the manual page");
    }
}

/// Every screen can be drawn in every size.
#[test]
fn a_terminal_of_any_size_can_be_drawn() {
    let mut state = state();
    let mut screens = vec![state.clone()];
    for keys in ["/x", "\r", "?"] {
        let mut other = state.clone();
        for key in keys.chars() {
            other.press(match key {
                '\r' => Key::Enter,
                char => Key::Char(char),
            });
        }
        screens.push(other);
    }
    state.press(Key::Char('b'));
    screens.push(state);
    for state in &screens {
        for columns in (0..12).chain((12..=100).step_by(8)) {
            for lines in (0..8).chain((8..=24).step_by(4)) {
                let area = Rect::new(0, 0, columns, lines);
                view::draw(state, Theme::new(true), area, &mut Buffer::empty(area));
            }
        }
    }
}

fn screen(state: &State, lines: u16) -> String {
    let area = Rect::new(0, 0, 80, lines);
    let mut buffer = Buffer::empty(area);
    view::draw(state, Theme::new(false), area, &mut buffer);
    let rows = (0..lines).map(|y| {
        let row: String = (0..80).map(|x| buffer[(x, y)].symbol()).collect();
        row.trim_end().to_owned() + "\n"
    });
    rows.collect()
}

/// A server on which something goes on.
fn state() -> State {
    let mut state = State::new(false);
    state.take(Report::Nodes(vec![SERVER.to_owned()]));
    for (second, grants) in [(1, 90_120), (2, 90_245)] {
        let at = Duration::from_secs(second);
        let mut sample = sample();
        sample.facts.totals = Totals {
            grants,
            handoffs: grants - 2_000,
            releases: grants - 3,
            renewals: 700 + second * 4,
            ..Totals::default()
        };
        state.take(Report::Sample {
            node: SERVER.to_owned(),
            at,
            sample: Box::new(sample),
        });
        state.tick(at);
    }
    let Some(node) = state.nodes.get_mut(SERVER) else {
        unreachable!()
    };
    if let Some(sample) = &mut node.sample {
        let wanted = &sample.wanted[0];
        let id = mortise_top::model::LockId {
            node: SERVER.to_owned(),
            db: wanted.db,
            key: wanted.key.clone(),
        };
        sample.opened = Some((id, Ok(wanted.detail.clone())));
    }
    state
}

fn sample() -> Sample {
    let facts = Facts {
        deployment: Deployment {
            role: Role::Primary,
            cluster: false,
            replicas: 1,
        },
        locks: 14,
        holders: 16,
        waiters: 5,
        by_mail: 4,
        blocked: 1,
        boxes: 2,
        wait: times([12, 85, 140, 3_200]),
        hold: times([8, 41, 95, 61_000]),
        failover_missing: "lock.grace 0 is less than 86413000".to_owned(),
        ..Facts::default()
    };
    let wanted = vec![
        lock(
            "stock:42",
            Mode::Write,
            &["alice##c2.1"],
            &["bob##k9.4", "carol##x1.77", "dora"],
        ),
        lock(
            "report:2026-11",
            Mode::Read,
            &["eve##1", "fay##3"],
            &["gil##12"],
        ),
        lock("invoice:7", Mode::Write, &["hal##8"], &["ida##5"]),
    ];
    Sample {
        facts,
        wanted,
        ..Sample::default()
    }
}

fn times([p50, p95, p99, max]: [u64; 4]) -> Times {
    Times { p50, p95, p99, max }
}

fn lock(key: &str, mode: Mode, holders: &[&str], queue: &[&str]) -> Wanted {
    let holds = (1..).zip(holders).map(|(number, owner)| Hold {
        owner: owner.as_bytes().to_vec(),
        write: u64::from(mode == Mode::Write),
        read: u64::from(mode == Mode::Read),
        token: 1_795_250_370_799_031 + number,
        lease_ms: 28_700 - number * 900,
        held_ms: 1_300 + number * 900,
        client: 4 + number,
    });
    let waiters = (0..).zip(queue).map(|(number, owner)| Waiter {
        owner: owner.as_bytes().to_vec(),
        mode: Mode::Write,
        lease_ms: 30_000,
        waited_ms: 1_250 - number * 380,
        left_ms: (number != 1).then_some(58_750 + number * 380),
        client: if number == 2 { 31 } else { 0 },
    });
    let detail = Detail {
        mode,
        holders: holders.len() as u64,
        waiters: queue.len() as u64,
        holds: holds.collect(),
        queue: waiters.collect(),
    };
    Wanted {
        db: 0,
        key: key.as_bytes().to_vec(),
        mode,
        holders: detail.holders,
        waiters: detail.waiters,
        oldest_ms: 1_250,
        detail: Some(detail),
    }
}
