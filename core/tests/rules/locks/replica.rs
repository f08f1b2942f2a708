//! A replica that receives the effects of every step as bytes, and whose boot-time clock shows another
//! time. It must hold what the primary holds, for as long.

use mortise_core::codec::{
    Arrival, BootId, Effect, Stamp, decode_effect, decode_lock, encode_effect, encode_lock,
};
use mortise_core::{Instant, Lock, OwnerRef, Stake, Token, TokenClock};

use super::perform::{owner, stakes};
use super::program::KEYS;
use super::reference::{Call, Verb};

/// What a step on one key of the primary did.
pub(crate) struct News<'a> {
    pub(crate) key: usize,
    /// The lock after it.
    pub(crate) primary: &'a Lock,
    pub(crate) ended: &'a [(Vec<u8>, Stake)],
    pub(crate) call: &'a Call,
    /// The last token after it.
    pub(crate) last: u64,
    pub(crate) now: u64,
    pub(crate) wall: u64,
    /// Whether a bad line carries it.
    pub(crate) heard: bool,
}

pub(crate) struct Replica {
    locks: Vec<Lock>,
    tokens: TokenClock,
    /// How far its boot-time clock is ahead.
    skew: i64,
    hears_all: bool,
}

impl Replica {
    pub(crate) fn hearing_all(skew: i64) -> Self {
        Self {
            locks: vec![Lock::free(); KEYS],
            tokens: TokenClock::new(),
            skew,
            hears_all: true,
        }
    }

    /// A replica that misses effects, as from a file that was cut or a server that broke the rules.
    pub(crate) fn with_a_bad_line(skew: i64) -> Self {
        Self {
            hears_all: false,
            ..Self::hearing_all(skew)
        }
    }

    fn boot(&self, now: u64) -> u64 {
        now.saturating_add_signed(self.skew)
    }

    /// Sends it the effects of a step.
    pub(crate) fn hear(&mut self, news: &News<'_>) {
        let News {
            key,
            primary,
            ended,
            call,
            last,
            now,
            wall,
            heard,
        } = *news;
        let written = Stamp {
            boot_id: BootId([1; 16]),
            machine: None,
            boot: Instant::from_millis(now),
            wall_ms: wall / 1_000,
        };
        if heard || self.hears_all {
            for (name, _) in ended {
                self.apply(key, &Effect::Drop(owner(name)), last, &written);
            }
            for effect in effects_of(primary, call) {
                self.apply(key, &effect, last, &written);
            }
            self.apply(key, &Effect::Clock, last, &written);
        }
        if self.hears_all {
            assert_eq!(self.tokens.last(), last);
            self.compare(key, primary, now);
            self.full_sync(primary, last, &written);
        } else {
            self.check(key, primary, call, heard);
        }
    }

    fn stamp(&self, written: &Stamp) -> Stamp {
        Stamp {
            boot_id: BootId([2; 16]),
            machine: None,
            boot: Instant::from_millis(self.boot(written.boot.as_millis())),
            // The wall clock is as wrong as possible: it must not matter for live data.
            wall_ms: u64::MAX,
        }
    }

    fn apply(&mut self, key: usize, effect: &Effect<'_>, last: u64, written: &Stamp) {
        let mut bytes = Vec::new();
        encode_effect(effect, last, written, &mut bytes);
        let (fact, last) =
            decode_effect(&bytes, Arrival::Live, &self.stamp(written)).expect("bytes of an effect");
        if let Some(last) = Token::new(last) {
            self.tokens.raise(last);
        }
        let lock = &mut self.locks[key];
        match fact {
            Effect::Put(owner, stake) => lock.put(owner, stake),
            Effect::Sole(owner, stake) => {
                lock.clear();
                lock.put(owner, stake);
            }
            Effect::Drop(owner) => {
                lock.remove(owner);
                assert!(lock.hold(owner).is_none());
            }
            Effect::Free => drop(lock.clear()),
            Effect::Clock | Effect::Heartbeat(_) => {}
        }
    }

    fn compare(&self, key: usize, primary: &Lock, now: u64) {
        let boot = self.boot(now);
        let seen = |lock: &Lock, now| -> Vec<_> {
            let lasting = |(name, stake)| seen_from(now, name, stake);
            stakes(lock).into_iter().map(lasting).collect()
        };
        assert_eq!(seen(&self.locks[key], boot), seen(primary, now));
    }

    /// Sending the whole lock at once gives the same as sending its effects one by one.
    fn full_sync(&self, primary: &Lock, last: u64, written: &Stamp) {
        let mut bytes = Vec::new();
        encode_lock(primary, last, written, &mut bytes);
        match decode_lock(&bytes, Arrival::Live, &self.stamp(written)) {
            Ok((lock, seen)) => {
                assert_eq!(seen, last);
                let sync = Self {
                    locks: vec![lock],
                    tokens: TokenClock::new(),
                    ..*self
                };
                sync.compare(0, primary, written.boot.as_millis());
            }
            Err(_) => assert!(primary.is_free(), "only a free lock has no bytes"),
        }
    }

    /// Whatever the replica missed: it has no writer together with others, and the caller's hold is as of the last effect received.
    fn check(&self, key: usize, primary: &Lock, call: &Call, heard: bool) {
        let lock = &self.locks[key];
        let mut first = None;
        for (_, stake) in lock.holds() {
            assert!(stake.write == 0 || lock.len() == 1);
            first = first.into_iter().chain([stake.deadline]).min();
        }
        assert_eq!(lock.next_deadline(), first);
        for name in call.owners().into_iter().filter(|_| heard) {
            let counts = |stake: Stake| (stake.write, stake.read, stake.token, stake.revoked);
            let here = lock.hold(owner(name)).map(counts);
            assert_eq!(here, primary.hold(owner(name)).map(counts));
        }
    }
}

/// The effects on the owners of a call. A hold that was passed on and is the only one needs one.
fn effects_of<'a>(lock: &'a Lock, call: &'a Call) -> Vec<Effect<'a>> {
    let new_owner = owner(&call.new_owner);
    if call.verb == Verb::Pass
        && lock.len() == 1
        && let Some(stake) = lock.hold(new_owner)
    {
        return vec![Effect::Sole(new_owner, stake)];
    }
    let owners = call.owners().into_iter();
    owners.map(|name| effect_for(lock, owner(name))).collect()
}

/// The effect on `owner` after a step.
fn effect_for<'a>(lock: &'a Lock, owner: OwnerRef<'a>) -> Effect<'a> {
    match lock.hold(owner) {
        Some(stake) if lock.len() == 1 && stake.read % 2 == 0 => Effect::Sole(owner, stake),
        Some(stake) => Effect::Put(owner, stake),
        None if lock.is_free() => Effect::Free,
        None => Effect::Drop(owner),
    }
}

/// A hold with its times counted from `now`.
fn seen_from(now: u64, name: Vec<u8>, stake: Stake) -> (Vec<u8>, u32, u32, Token, i64, i64, bool) {
    let from_now = |at: Instant| at.as_millis().cast_signed() - now.cast_signed();
    (
        name,
        stake.write,
        stake.read,
        stake.token,
        from_now(stake.deadline),
        from_now(stake.since),
        stake.revoked,
    )
}
