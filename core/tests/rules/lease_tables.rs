//! The tables of all databases, compared with a list of locks: their counts, what is due first, and the memory of a database
//! without locks.

use std::collections::BTreeMap;

use allocation_counter::measure;
use mortise_core::{Db, Instant, KeyRef, LeaseTables, Listed};
use proptest::prelude::*;

/// By database and name: the entry, and when the first lease ends.
type Model = BTreeMap<(u32, u8), (Listed, u64)>;

/// A deadline may be noticed this late.
const WIDTH: u64 = 32;

fn key(db: u32, name: &[u8]) -> KeyRef<'_> {
    KeyRef { db: Db(db), name }
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

#[derive(Clone, Debug)]
enum Step {
    Follow {
        db: u32,
        name: u8,
        holders: u32,
        after: u64,
    },
    Forget {
        db: u32,
        name: u8,
    },
    Swap(u32, u32),
    Clear(Option<u32>),
    Sweep {
        after: u64,
    },
}

fn dbs() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 0..3_u32, 2 => 0..40_u32, 1 => Just(999_999)]
}

fn steps() -> impl Strategy<Value = Step> {
    let follow = (dbs(), 0..90_u8, 1..4_u32, 0..400_000_u64);
    prop_oneof![
        60 => follow.prop_map(|(db, name, holders, after)| Step::Follow { db, name, holders, after }),
        20 => (dbs(), 0..90_u8).prop_map(|(db, name)| Step::Forget { db, name }),
        2 => (dbs(), dbs()).prop_map(|(one, other)| Step::Swap(one, other)),
        1 => prop::option::weighted(0.8, dbs()).prop_map(Step::Clear),
        8 => (0..100_000_u64).prop_map(|after| Step::Sweep { after }),
    ]
}

proptest! {
    #![proptest_config(crate::random::config(256))]

    #[test]
    fn the_tables_agree_with_a_list_of_all_locks(
        steps in prop::collection::vec(steps(), 1..600),
    ) {
        let (mut tables, mut model, mut now) = (LeaseTables::new(), Model::new(), 1_000);
        for step in steps {
            act(&mut tables, &mut model, &mut now, &step);
            prop_assert_eq!(tables.locks(), model.len() as u64);
            let holders = model.values().map(|(listed, _)| u64::from(listed.holders)).sum::<u64>();
            prop_assert_eq!(tables.holders(), holders);
        }
    }
}

fn act(tables: &mut LeaseTables, model: &mut Model, now: &mut u64, step: &Step) {
    match *step {
        Step::Follow {
            db,
            name,
            holders,
            after,
        } => {
            let deadline = *now + after;
            let before = model.get(&(db, name)).map(|(listed, _)| *listed);
            let listed = tables.follow(key(db, &[name]), before, holders, at(deadline));
            model.insert((db, name), (listed, deadline));
        }
        Step::Forget { db, name } => {
            if let Some((listed, _)) = model.remove(&(db, name)) {
                tables.forget(key(db, &[name]), listed);
                tables.forget(key(db, &[name]), listed);
            }
        }
        Step::Swap(one, other) => {
            tables.swap(Db(one), Db(other));
            let locks = std::mem::take(model).into_iter();
            model.extend(locks.map(|((db, name), lock)| match db {
                db if db == one => ((other, name), lock),
                db if db == other => ((one, name), lock),
                db => ((db, name), lock),
            }));
        }
        Step::Clear(db) => {
            let mut gone = tables.clear(db.map(Db));
            while gone.drop_some() {}
            model.retain(|(at, _), _| db.is_some_and(|db| db != *at));
        }
        Step::Sweep { after } => {
            *now += after;
            sweep(tables, model, *now);
        }
    }
}

fn sweep(tables: &mut LeaseTables, model: &mut Model, now: u64) {
    let mut name = Vec::new();
    while let Some((Db(db), id)) = tables.due(at(now), &mut name) {
        let (listed, deadline) = model.remove(&(db, name[0])).expect("a lock that is there");
        assert_eq!(listed.id, id);
        assert!(deadline <= now, "due before its deadline");
        tables.forget(key(db, &name), listed);
    }
    let late = model.values().find(|(_, deadline)| deadline + WIDTH <= now);
    assert_eq!(late, None, "ended and not due");
}

/// Bytes that a hundred thousand databases with one lock each may take, for each.
const MOST: i64 = 1_000;

#[test]
fn a_database_takes_no_memory_without_locks_and_little_with_one() {
    const DATABASES: u32 = 100_000;
    let mut tables = LeaseTables::new();
    let one = measure(|| {
        tables.follow(key(u32::MAX, b"key"), None, 1, at(30_000));
    });
    assert!(one.bytes_current < 2_000, "{one:?}");
    let all = measure(|| {
        for db in 0..DATABASES {
            let listed = tables.follow(key(db, b"key"), None, 1, at(30_000));
            assert_eq!(listed.holders, 1);
        }
    });
    let each = all.bytes_current / i64::from(DATABASES);
    assert!(each < MOST, "{each} bytes each");
    let gone = measure(|| {
        let mut gone = tables.clear(None);
        while gone.drop_some() {}
    });
    assert_eq!(
        one.bytes_current + all.bytes_current + gone.bytes_current,
        0
    );
}

#[test]
fn a_database_whose_locks_have_gone_takes_no_memory_again() {
    let mut tables = LeaseTables::new();
    let round = measure(|| {
        for db in 0..10_000 {
            let listed = tables.follow(key(db, b"key"), None, 1, at(30_000));
            let listed = tables.follow(key(db, b"key"), Some(listed), 2, at(40_000));
            tables.forget(key(db, b"key"), listed);
        }
    });
    assert_eq!((tables.locks(), tables.holders()), (0, 0));
    // The tables of the first databases stay allocated.
    assert!(round.bytes_current < 20_000, "{round:?}");
}

#[test]
fn the_locks_of_a_flushed_database_are_dropped_in_steps() {
    const LOCKS: u32 = 10_000;
    let mut tables = LeaseTables::new();
    for lock in 0..LOCKS {
        let name = lock.to_string();
        tables.follow(key(0, name.as_bytes()), None, 1, at(30_000));
    }
    let (mut gone, mut steps) = (tables.clear(Some(Db(0))), 0);
    assert!(!gone.is_empty());
    assert_eq!((tables.locks(), tables.holders()), (0, 0));
    loop {
        let mut more = false;
        let step = measure(|| more = gone.drop_some());
        // 64 entries, and what remains of the table at the end.
        assert!(step.bytes_current > -50_000, "{step:?}");
        if !more {
            break;
        }
        steps += 1;
    }
    assert!(steps > LOCKS / 64, "{steps} steps");
    assert!(gone.is_empty() && tables.is_empty());
}

#[test]
fn an_entry_that_is_another_lock_s_by_now_stays() {
    let mut tables = LeaseTables::new();
    let first = tables.follow(key(0, b"first"), None, 1, at(1_000));
    tables.forget(key(0, b"first"), first);
    let second = tables.follow(key(0, b"second"), None, 1, at(1_000));
    assert_eq!(first.id, second.id);
    tables.forget(key(0, b"first"), first);
    assert_eq!((tables.locks(), tables.holders()), (1, 1));
    tables.follow(key(0, b"first"), Some(first), 2, at(1_000));
    assert_eq!((tables.locks(), tables.holders()), (2, 3));
}

#[test]
fn an_entry_without_a_key_is_dropped_and_others_stay() {
    let mut tables = LeaseTables::new();
    let lost = tables.follow(key(7, b"lost"), None, 1, at(1_000));
    tables.follow(key(7, b"kept"), None, 1, at(9_000));
    let mut name = Vec::new();
    assert_eq!(tables.due(at(2_000), &mut name), Some((Db(7), lost.id)));
    assert_eq!(name, b"lost");
    tables.put_off(Db(7), lost.id, at(3_000));
    assert_eq!(tables.due(at(2_500), &mut name), None);
    assert_eq!(tables.due(at(4_000), &mut name), Some((Db(7), lost.id)));
    tables.drop_stale(Db(7), lost.id, at(4_000));
    assert_eq!(tables.locks(), 1);
    assert_eq!(tables.due(at(8_000), &mut name), None);
    let (_, id) = tables.due(at(10_000), &mut name).expect("it has ended");
    tables.drop_stale(Db(7), id, at(10_000));
    assert_eq!((tables.locks(), tables.holders()), (0, 0));
}
