//! Saved locks and effects: any bytes are refused, or make a possible lock.

use std::num::NonZeroU64;

use mortise_core::codec::{
    Arrival, BootId, Effect, MachineId, Stamp, decode_effect, decode_lock, encode_effect,
    encode_lock, stamp_of_effect, stamp_of_lock,
};
use mortise_core::{Instant, Lock, Mode, Owner, Stake};

const ARRIVALS: [Arrival; 3] = [Arrival::Live, Arrival::File, Arrival::ReplicaFile];

/// Where bytes arrive: on the machine that wrote the corpus, and on others at the ends of time.
fn places() -> [Stamp; 3] {
    let machine = |id| NonZeroU64::new(id).map(MachineId);
    let place = |boot_id, machine, boot, wall_ms| Stamp {
        boot_id: BootId([boot_id; 16]),
        machine,
        boot: Instant::from_millis(boot),
        wall_ms,
    };
    [
        place(7, machine(11), 1_000_000, 1_700_000_000_000),
        place(9, machine(11), 0, u64::MAX),
        place(7, None, u64::MAX, 0),
    ]
}

/// A lock that was dumped, or saved to a file.
pub fn locks(bytes: &[u8]) {
    for here in places() {
        for arrival in ARRIVALS {
            let Ok((lock, last)) = decode_lock(bytes, arrival, &here) else {
                continue;
            };
            assert!(last < 1 << 53);
            assert!(stamp_of_lock(bytes).is_some());
            assert_possible(&lock);
            // At the ends of time nothing can be encoded.
            if here == places()[0] {
                let mut again = Vec::new();
                encode_lock(&lock, last, &here, &mut again);
                let back = decode_lock(&again, Arrival::Live, &here).expect("bytes of a lock");
                assert_eq!((left(&back.0, &here), back.1), (left(&lock, &here), last));
            }
        }
    }
}

/// An effect, applied to a lock that others hold.
pub fn effects(bytes: &[u8]) {
    for here in places() {
        for arrival in ARRIVALS {
            let Ok((fact, last)) = decode_effect(bytes, arrival, &here) else {
                continue;
            };
            assert!(last < 1 << 53);
            let effect = match &fact {
                Effect::Put(owner, stake) => Effect::Put(*owner, *stake),
                Effect::Sole(owner, stake) => Effect::Sole(*owner, *stake),
                Effect::Drop(owner) => Effect::Drop(*owner),
                Effect::Free => Effect::Free,
                Effect::Clock => Effect::Clock,
                Effect::Heartbeat(heartbeat) => Effect::Heartbeat(*heartbeat),
            };
            apply(&fact);
            let is_stamped = matches!(
                fact,
                Effect::Put(..) | Effect::Sole(..) | Effect::Heartbeat(_)
            );
            assert_eq!(stamp_of_effect(bytes).is_some(), is_stamped);
            if here != places()[0] {
                continue;
            }
            let mut again = Vec::new();
            encode_effect(&effect, last, &here, &mut again);
            let (back, seen) = decode_effect(&again, Arrival::Live, &here).expect("an effect");
            assert_eq!(seen, last);
            if let (Effect::Put(owner, stake), Effect::Put(other, after)) = (&fact, &back) {
                assert_eq!((owner, stake.token), (other, after.token));
            }
        }
    }
}

fn apply(fact: &Effect<'_>) {
    let mut lock = Lock::free();
    for _ in 0..2 {
        match fact {
            Effect::Put(owner, stake) | Effect::Sole(owner, stake) => {
                lock.put(*owner, *stake);
                let stands = lock.hold(*owner).expect("it was put there");
                assert_eq!((stands.write, stands.read), (stake.write, stake.read));
                assert_possible(&lock);
            }
            Effect::Drop(owner) => drop(lock.remove(*owner)),
            Effect::Free => drop(lock.clear()),
            Effect::Clock | Effect::Heartbeat(_) => {}
        }
    }
}

/// Checks that at least one owner holds, and that a writer holds alone.
fn assert_possible(lock: &Lock) {
    let holds: Vec<(Owner, Stake)> = lock.holds().collect();
    assert!(!holds.is_empty());
    assert_eq!(holds.len(), lock.len());
    assert!(holds.is_sorted_by(|(one, _), (other, _)| one < other));
    for (owner, stake) in &holds {
        assert!((1..=255).contains(&owner.text().len()));
        assert!(stake.total() > 0 && stake.token.get() < 1 << 53);
        assert!(holds.len() == 1 || stake.mode() == Mode::Read);
    }
}

/// Owners with their counts, their tokens, and what is left of their leases.
fn left(lock: &Lock, here: &Stamp) -> Vec<(Owner, u32, u32, u64, u64, bool)> {
    let of = |(owner, stake): (Owner, Stake)| {
        let left = stake.deadline.millis_since(here.boot);
        let token = stake.token.get();
        (owner, stake.write, stake.read, token, left, stake.revoked)
    };
    lock.holds().map(of).collect()
}
