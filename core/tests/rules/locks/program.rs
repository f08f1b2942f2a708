//! Random programs: actions of a few owners at a few keys, and how time passes. Tokens and moments are relative to the state at that step
//! ("the held one", "just past the bound"), so that a random program comes close to every bound.

use mortise_core::{How, Mode};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::reference::{Call, Reference, Verb};

pub(crate) const KEYS: usize = 2;
const OWNERS: usize = 9;
const MAX_COUNT: u32 = (1 << 31) - 1;
const MAX_TOKEN: u64 = (1 << 53) - 1;
/// The largest connection id that a hold keeps.
const MAX_CLIENT: u64 = (1 << 40) - 1;

/// Owners on both sides of what fits into an `Owner` itself, some a prefix of others.
pub(crate) fn owner(index: usize) -> Vec<u8> {
    match index {
        0 => b"a".to_vec(),
        1 => vec![0],
        2 => vec![b'a'; 22],
        3 => vec![b'a'; 23],
        4 => b"0f8fad5b-d9cb-469f-a165-70867728950e".to_vec(),
        5 => b"0f8fad5b-d9cb-469f-a165-70867728950e:12345".to_vec(),
        6 => b"0f8fad5b-d9cb-469f-a165-70867728950e:123456".to_vec(),
        7 => b"0F8FAD5B-D9CB-469F-A165-70867728950E".to_vec(),
        _ => vec![0xff; 255],
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The primary's boot-time clock at the start, milliseconds.
    pub(crate) boot: u64,
    /// Its wall clock, microseconds.
    pub(crate) wall: u64,
    /// How far the replica's boot-time clock is ahead of the primary's.
    pub(crate) skew: i64,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) pause: Pause,
    /// How far the wall clock steps in addition to the time that passes, microseconds.
    pub(crate) wall: i64,
    pub(crate) key: usize,
    pub(crate) deed: Deed,
    /// Whether the replica with the bad line receives it.
    pub(crate) heard: bool,
}

/// Time that passes before a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pause {
    Millis(u64),
    /// Until the first lease on the key is over, and this many milliseconds more.
    FirstDeadline(i64),
    /// The same for the last lease on it.
    LastDeadline(i64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fence {
    None,
    /// From the last token; may be below 1 and above the bound.
    FromLast(i64),
    /// From the wall clock.
    FromWall(i64),
    /// From the bound; above it is refused.
    FromBound(i64),
    Max,
}

/// The owner that acts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Anybody(usize),
    /// A holder of the key, if there is one.
    Holder(usize),
}

/// The token that a caller names as its hold's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ownership {
    Unnamed,
    Held,
    /// The held one plus this.
    Off(i64),
    /// One that was granted before, on any key.
    Earlier(usize),
}

/// A [`Call`] before its names and tokens are known.
#[derive(Clone, Debug)]
pub(crate) struct Deed {
    verb: Verb,
    owner: Who,
    new_owner: Who,
    mode: Mode,
    lease: u64,
    holds: Option<u32>,
    /// Raised to `holds` where it is less.
    limit: Option<u32>,
    fence: Fence,
    token: Ownership,
    how: How,
    client: u64,
}

impl Pause {
    pub(crate) fn millis(self, model: &Reference, key: usize, now: u64) -> u64 {
        let deadlines = || model.holds.iter().filter(|h| h.key == key).map(|h| h.ends);
        let (deadline, more) = match self {
            Self::Millis(ms) => return ms,
            Self::FirstDeadline(more) => (deadlines().min(), more),
            Self::LastDeadline(more) => (deadlines().max(), more),
        };
        deadline.map_or(0, |deadline| {
            deadline.saturating_add_signed(more).saturating_sub(now)
        })
    }
}

impl Who {
    fn name(self, model: &Reference, key: usize) -> Vec<u8> {
        let (Self::Anybody(index) | Self::Holder(index)) = self;
        let mut holders = model.holds.iter().filter(|hold| hold.key == key);
        let holder = match self {
            Self::Anybody(_) => None,
            Self::Holder(index) => holders.nth(index % holders.clone().count().max(1)),
        };
        holder.map_or_else(|| owner(index), |hold| hold.owner.clone())
    }
}

impl Fence {
    fn token(self, model: &Reference, wall: u64) -> Option<u64> {
        let (from, more) = match self {
            Self::None => return None,
            Self::FromLast(more) => (model.last, more),
            Self::FromWall(more) => (wall, more),
            Self::FromBound(more) => (model.bound(wall), more),
            Self::Max => (MAX_TOKEN, 0),
        };
        Some(from.saturating_add_signed(more).clamp(1, MAX_TOKEN))
    }
}

impl Ownership {
    fn token(self, held: Option<u64>, granted: &[u64]) -> Option<u64> {
        let held = held.unwrap_or(1);
        match self {
            Self::Unnamed => None,
            Self::Held => Some(held),
            Self::Off(more) => Some(held.saturating_add_signed(more).clamp(1, MAX_TOKEN)),
            Self::Earlier(index) => match granted.len() {
                0 => Some(1),
                len => Some(granted[index % len]),
            },
        }
    }
}

impl Deed {
    /// The action with its tokens as numbers. `granted` are all tokens granted before.
    pub(crate) fn call(&self, model: &Reference, key: usize, wall: u64, granted: &[u64]) -> Call {
        let name = |who: Who| who.name(model, key);
        let owner = name(self.owner);
        let held = model.find(key, &owner).map(|hold| hold.token);
        let limit = self.limit.filter(|_| self.mode == Mode::Read);
        Call {
            verb: self.verb,
            owner,
            new_owner: name(self.new_owner),
            mode: self.mode,
            lease: self.lease,
            holds: self.holds,
            limit: limit.map(|limit| limit.max(self.holds.unwrap_or(1))),
            fence: self.fence.token(model, wall),
            token: self.token.token(held, granted),
            how: self.how,
            client: self.client,
        }
    }
}

pub(crate) fn programs() -> impl Strategy<Value = Program> {
    // Five centuries of wall clock fit below the last token; a few programs reach it.
    let wall = prop_oneof![
        20 => 0..2_000_000_000_000_000_u64,
        1 => Just(0),
        1 => MAX_TOKEN - 10_000_000..MAX_TOKEN,
    ];
    // Both clocks stay below the 69 years that the beginning of a hold is kept for.
    let skew = -(1_i64 << 38)..1 << 38;
    (1_u64 << 39..1 << 40, wall, skew, vec(steps(), 1..200)).prop_map(
        |(boot, wall, skew, steps)| Program {
            boot,
            wall,
            skew,
            steps,
        },
    )
}

pub(crate) fn steps() -> impl Strategy<Value = Step> {
    let wall = prop_oneof![
        8 => Just(0_i64),
        1 => -5_000_000..5_000_000_i64,
        1 => -10_000_000_000..10_000_000_000_i64,
    ];
    (pauses(), wall, 0..KEYS, deeds(), prop::bool::weighted(0.8)).prop_map(
        |(pause, wall, key, deed, heard)| Step {
            pause,
            wall,
            key,
            deed,
            heard,
        },
    )
}

fn pauses() -> impl Strategy<Value = Pause> {
    prop_oneof![
        30 => Just(Pause::Millis(0)),
        6 => (1..20_u64).prop_map(Pause::Millis),
        1 => (20..3_000_u64).prop_map(Pause::Millis),
        3 => (-1..=1_i64).prop_map(Pause::FirstDeadline),
        1 => (-1..=1_i64).prop_map(Pause::LastDeadline),
    ]
}

fn deeds() -> impl Strategy<Value = Deed> {
    let verbs = prop_oneof![
        10 => Just(Verb::Acquire),
        6 => Just(Verb::Release),
        3 => Just(Verb::Renew),
        4 => Just(Verb::Pass),
        1 => Just(Verb::Revoke),
        2 => Just(Verb::Fence),
        1 => Just(Verb::Look),
    ];
    let terms = (modes(), leases(), holds(), limits(), fences());
    let rest = (ownerships(), prop::bool::weighted(0.25), hows(), clients());
    (verbs, owners(), owners(), terms, rest).prop_map(|(verb, owner, new_owner, terms, rest)| {
        let (mode, lease, holds, limit, fence) = terms;
        let (token, adds, how, client) = rest;
        // Most requests name no token.
        let is_plain = verb == Verb::Acquire && !adds;
        Deed {
            verb,
            owner,
            new_owner,
            mode,
            lease,
            holds,
            limit,
            fence,
            token: if is_plain { Ownership::Unnamed } else { token },
            how,
            client,
        }
    })
}

fn owners() -> impl Strategy<Value = Who> {
    prop_oneof![
        3 => (0..OWNERS).prop_map(Who::Anybody),
        2 => (0..OWNERS).prop_map(Who::Holder),
    ]
}

fn modes() -> impl Strategy<Value = Mode> {
    prop_oneof![3 => Just(Mode::Read), 2 => Just(Mode::Write)]
}

fn leases() -> impl Strategy<Value = u64> {
    prop_oneof![2 => 1..50_u64, 4 => 50..2_000_u64, 1 => Just(86_400_000)]
}

fn holds() -> impl Strategy<Value = Option<u32>> {
    let count = prop_oneof![6 => 1..5_u32, 1 => MAX_COUNT - 2..=MAX_COUNT];
    option::weighted(0.3, count)
}

fn limits() -> impl Strategy<Value = Option<u32>> {
    let limit = prop_oneof![8 => 1..12_u32, 1 => MAX_COUNT - 2..=MAX_COUNT];
    option::weighted(0.5, limit)
}

fn fences() -> impl Strategy<Value = Fence> {
    prop_oneof![
        24 => Just(Fence::None),
        4 => (-3..=3_i64).prop_map(Fence::FromLast),
        2 => (-3..=3_i64).prop_map(Fence::FromWall),
        2 => (-2..=2_i64).prop_map(Fence::FromBound),
        1 => Just(Fence::Max),
    ]
}

fn ownerships() -> impl Strategy<Value = Ownership> {
    prop_oneof![
        3 => Just(Ownership::Unnamed),
        3 => Just(Ownership::Held),
        1 => (-2..=2_i64).prop_map(Ownership::Off),
        2 => any::<usize>().prop_map(Ownership::Earlier),
    ]
}

fn hows() -> impl Strategy<Value = How> {
    let named = || option::of(modes());
    let most = prop_oneof![8 => 0..5_u32, 1 => MAX_COUNT - 1..=MAX_COUNT, 1 => Just(u32::MAX)];
    prop_oneof![
        4 => named().prop_map(How::One),
        3 => (most, named()).prop_map(|(most, mode)| How::LeaveAt(most, mode)),
        1 => Just(How::All),
    ]
}

fn clients() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..100_u64, 1 => MAX_CLIENT - 1..=MAX_CLIENT]
}
